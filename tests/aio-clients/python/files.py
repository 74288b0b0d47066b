"""`/v1/file`, but for watches."""

import base64

from client import fails, status_of

BYTES = bytes(range(256)) * 64


async def files(client, tally, root):
    await content(client, tally, root)
    await searches(client, tally, root)
    await editor(client, tally, root)
    await failures(client, tally, root)


async def content(client, tally, root):
    check, file = tally.check, client.file
    path = f"{root}/a.txt"
    written = (await file.write_file(file=path, content="one\ntwo\nthree\n")).data
    check("write_file", (written.file, written.bytes_written) == (path, 14), written)
    await file.write_file(file=path, content="four", append=True, leading_newline=False, trailing_newline=True)
    check("append", (await file.read_file(file=path)).data.content == "one\ntwo\nthree\nfour\n")
    part = (await file.read_file(file=path, start_line=1, end_line=3, sudo=False)).data.content
    check("read_file by lines", part.rstrip("\n") == "two\nthree", part)
    encoded = base64.b64encode(BYTES).decode()
    check("base64", (await file.write_file(file=f"{root}/b", content=encoded, encoding="base64")).data.bytes_written)
    check("download_file", await file.download_file(path=f"{root}/b") == BYTES)
    check("download_file, in pieces", await file.download_file(path=f"{root}/b", request_options={"chunk_size": 999}) == BYTES)
    await file.write_file(file=f"{root}/empty", content="")
    check("download_file, empty", await file.download_file(path=f"{root}/empty") == b"")
    sent = (await file.upload_file(file=("up.bin", BYTES, "application/octet-stream"), path=f"{root}/up")).data
    check("upload_file", (sent.file_path, sent.file_size, sent.success) == (f"{root}/up", len(BYTES), True), sent)
    check("what was uploaded", await file.download_file(path=f"{root}/up") == BYTES)
    check("upload_file without a path", (await file.upload_file(file=("named ü.txt", b"u"))).data.file_size == 1)
    check("upload_file of bytes", (await file.upload_file(file=b"bare", path=f"{root}/bare")).data.file_size == 4)
    check("replace_in_file", (await file.replace_in_file(file=path, old_str="two", new_str="2")).data.replaced_count == 1)
    found = (await file.search_in_file(file=path, regex="^t.*e$")).data
    check("search_in_file", (found.matches, len(found.line_numbers)) == (["three"], 1), found)


async def searches(client, tally, root):
    check, file = tally.check, client.file
    for name, text in (("deep/x.md", "needle\n"), ("node_modules/p/i.js", "needle\n"), ("src/i.py", "Needle\nx\nneedle\ny\n")):
        await file.write_file(file=f"{root}/{name}", content=text)
    for pattern in ("*.md", "**/*.md"):
        check("find_files", (await file.find_files(path=root, glob=pattern)).data.files == [f"{root}/deep/x.md"])

    async def grep(**fields):
        return (await file.grep_files(**{"path": root, "pattern": "needle", **fields})).data

    check("grep_files", [one.line_number for one in (await grep(exclude=["node_modules", "*.md"])).matches] == [3])
    one = await grep(include=["*.py"], case_insensitive=True, context_before=1, context_after=1, max_results=1, offset=1)
    match = one.matches[0]
    check("grep_files with context", (match.context_before, match.context_after) == (["x"], ["y"]), one)
    check("grep_files, literally", (await grep(pattern="need.e", fixed_strings=True)).matches == [])
    check("grep_files by type", {one.file for one in (await grep(type="py")).matches} == {f"{root}/src/i.py"})
    check("grep_files across lines", len((await grep(pattern="x.needle", multiline=True, max_file_size="1M")).matches) == 1)
    check("grep_files in one file", (await grep(path=f"{root}/src/i.py", recursive=False)).match_count == 1)
    fields = {"exclude": ["node_modules"], "include_hidden": True, "max_results": 50, "sort_by": "name", "sort_desc": True}
    globbed = (await file.glob_files(path=root, pattern="**/*", files_only=True, include_metadata=True, **fields)).data
    check("glob_files", globbed.files[0].name == "x.md" and globbed.total_count == len(globbed.files), globbed)
    plain = (await file.glob_files(path=root, pattern="*", files_only=False, include_metadata=False)).data
    check("glob_files, directories", any(one.is_directory and one.size is None for one in plain.files), plain)
    for order in ("name", "size", "modified", "type"):
        fields = {"show_hidden": False, "max_depth": 2, "include_size": True, "include_permissions": True}
        listed = await file.list_path(path=root, recursive=True, file_types=[".py"], sort_by=order, sort_desc=True, **fields)
        names = {one.name for one in listed.data.files if not one.is_directory}
        check(f"list_path by {order}", names == {"i.py"} and listed.data.file_count == 1, listed)


async def editor(client, tally, root):
    check, path = tally.check, f"{root}/edited.py"

    async def edit(command, **fields):
        return (await client.file.str_replace_editor(command=command, path=path, **fields)).data

    check("create", (await edit("create", file_text="a\nb\na\n")).prev_exist is False)
    check("view", "b" in (await edit("view", view_range=[2, -1], enable_metadata=True)).output)
    done = await edit("str_replace", old_str="b", new_str="B")
    check("str_replace", (done.old_content, done.new_content) == ("a\nb\na\n", "a\nB\na\n"), done)
    check("replace_mode", (await edit("str_replace", old_str="a", new_str="z", replace_mode="LAST")).new_content == "a\nB\nz\n")
    check("insert", (await edit("insert", insert_line=1, new_str="i")).new_content == "a\ni\nB\nz\n")
    check("undo_edit", (await edit("undo_edit")).new_content == "a\nB\nz\n")
    listed = (await client.file.str_replace_editor(command="view", path=root)).data.output
    check("view of a directory", path in listed, listed)


async def failures(client, tally, root):
    file, none = client.file, f"{root}/none"
    for call in (
        file.read_file(file=none),
        file.read_file(file="relative"),
        file.write_file(file="/proc/none/x", content="x"),
        file.replace_in_file(file=none, old_str="a", new_str="b"),
        file.search_in_file(file=none, regex="a"),
        file.find_files(path=none, glob="*"),
        file.grep_files(path=none, pattern="x"),
        file.grep_files(path=root, pattern="("),
        file.glob_files(path=none, pattern="*"),
        file.list_path(path=none),
        file.str_replace_editor(command="str_replace", path=none, old_str="a", new_str="b"),
    ):
        tally.check("a failure is told", await fails(call))
    for path, expected in ((none, 404), (root, 400), (None, 422)):
        status, _ = await status_of(file.download_file(path=path))
        tally.check("a download's status", status == expected, (path, status))
