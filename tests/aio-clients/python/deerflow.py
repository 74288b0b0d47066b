"""The requests of DeerFlow's AioSandbox, call by call, and what it reads from the responses."""

import base64
import shlex
import uuid


async def deerflow(client, tally, root):
    check, file, shell = tally.check, client.file, client.shell
    check("home_dir", (await client.sandbox.get_context()).home_dir.startswith("/"))
    ran = (await shell.exec_command(command="echo out; echo err >&2; false", no_change_timeout=600)).data
    check("execute_command", ran.output.splitlines() == ["out", "err"], ran)
    fresh = str(uuid.uuid4())
    await shell.create_session(id=fresh)
    again = (await shell.exec_command(command="echo again", id=fresh, no_change_timeout=600)).data
    check("execute_command in a new session", again.output == "again\n", again)
    await shell.cleanup_session(fresh)
    with_env = (await client.bash.exec(command="echo $S; echo e >&2", env={"S": "s"}, hard_timeout=600.0)).data
    check("execute_command with env", (with_env.stdout, with_env.stderr) == ("s\n", "e\n"), with_env)
    path = f"{root}/df/a.txt"
    await file.write_file(file=path, content="l1\nl2\nl3\n")
    old = (await file.read_file(file=path)).data.content
    await file.write_file(file=path, content=f"{old}l4\n")
    part = (await file.read_file(file=path, start_line=1, end_line=3)).data.content
    check("read_file, appended", part.rstrip("\n") == "l2\nl3", part)
    blob = bytes(range(256)) * 4096
    await file.write_file(file=f"{root}/df/b.bin", content=base64.b64encode(blob).decode(), encoding="base64")
    check("download_file", await file.download_file(path=f"{root}/df/b.bin") == blob)
    for name in ("sub/b.py", ".hidden/c.py"):
        await file.write_file(file=f"{root}/df/{name}", content="import os\nneedle = 1\n")
    find = f"find {shlex.quote(root + '/df')} -maxdepth 2 -type f -o -type d 2>/dev/null | head -500"
    lines = (await shell.exec_command(command=find, no_change_timeout=600)).data.output.splitlines()
    check("list_dir", {path, f"{root}/df/sub", f"{root}/df/sub/b.py"} <= set(lines), lines)
    check("glob", f"{root}/df/sub/b.py" in (await file.find_files(path=f"{root}/df", glob="**/*.py")).data.files)
    listed = (await file.list_path(path=f"{root}/df", recursive=True, show_hidden=False)).data.files
    names = {one.path.removeprefix(f"{root}/df/") for one in listed}
    check("glob with directories", names == {"a.txt", "b.bin", "sub", "sub/b.py"}, names)
    wish = {"case_insensitive": True, "fixed_strings": False, "max_results": 400, "max_file_size": "1M", "recursive": True}
    found = (await file.grep_files(path=f"{root}/df", pattern="NEEDLE", **wish)).data
    matches = [(one.file, one.line_number, one.line_content) for one in found.matches]
    check("grep", (f"{root}/df/sub/b.py", 2, "needle = 1") in matches and found.truncated is False, found)
    for _ in range(30):
        await shell.exec_command(command="true", no_change_timeout=600)
    check("sessions do not pile up", len((await shell.list_sessions()).data.sessions) <= 20)
