"""`/v1/sandbox` and `/v1/shell`."""

import asyncio
import time
import uuid

from client import status_of


async def sandbox(client, tally):
    about = await client.sandbox.get_context()
    tally.check("get_context", about.home_dir and about.version and about.detail.system.os == "linux", about)
    # Unsupported, as the status says.
    for call in (
        client.sandbox.get_python_packages(),
        client.sandbox.get_nodejs_packages(),
        client.sandbox.list_hooks(),
        client.sandbox.register_hook(name="hook", command="true"),
        client.sandbox.remove_hook("hook"),
    ):
        status, _ = await status_of(call)
        tally.check("packages and hooks are not served", status == 404, status)
    return about.workspace


async def shell(client, tally, root):
    await commands(client, tally, root)
    await directories(client, tally, root)
    await long_ones(client, tally)
    await sessions(client, tally)


async def commands(client, tally, root):
    check, run = tally.check, client.shell.exec_command
    done = (await run(command="echo out; echo err >&2; exit 3")).data
    check("exec", (done.status, done.exit_code, done.output) == ("completed", 3, "out\nerr\n"), done)
    fill = "head -c 50000 /dev/zero | tr '\\0' x"
    check("exec cuts", 29_000 < len((await run(command=fill)).data.output) < 31_000)
    check("exec does not cut", len((await run(command=fill, truncate=False)).data.output) == 50_000)
    status, body = await status_of(run(command=None))
    check("a field that is missing", status == 422 and body.detail[0].loc[-1] == "command", body)


async def directories(client, tally, root):
    check, run = tally.check, client.shell.exec_command
    name = uuid.uuid4().hex
    made = (await client.shell.create_session(id=name, exec_dir=root, no_change_timeout=60, preserve_symlinks=True)).data
    check("create_session", (made.session_id, made.working_dir) == (name, root), made)
    again = (await client.shell.create_session(id=name, exec_dir="/")).data
    check("create_session again", (again.session_id, again.working_dir) == (name, root), again)
    await run(command="X=kept; ln -sfn . link", id=name)
    check("a session's state", (await run(command="echo $X; pwd", id=name)).data.output == f"kept\n{root}\n")
    for session in ({}, {"id": name}):
        check("exec_dir", (await run(command="pwd", exec_dir="/tmp", **session)).data.output == "/tmp\n", session)
        lost = await run(command="echo here", exec_dir="/no/where", **session)
        check("exec_dir that is not there", lost.success and lost.data.output == "here\n", lost)
        strict = await run(command="echo here", exec_dir="/no/where", strict=True, **session)
        check("exec_dir, strictly", strict.success is False, strict)
        link = {"command": "pwd", "exec_dir": f"{root}/link", **session}
        check("a link followed", (await run(**link)).data.output == f"{root}\n")
        check("a link kept", (await run(**link, preserve_symlinks=True)).data.output == f"{root}/link\n")
    check("cleanup_session", (await client.shell.cleanup_session(name)).success)


async def long_ones(client, tally):
    check, shell, id = tally.check, client.shell, uuid.uuid4().hex
    begun = (await shell.exec_command(command="echo up; read x; echo got $x; sleep 60", id=id, async_mode=True)).data
    check("async_mode", begun.status == "running", begun)
    await asyncio.sleep(0.5)
    written = (await shell.write_to_process(id=id, input="this", press_enter=True)).data
    check("write_to_process", written.status == "running", written)
    await asyncio.sleep(0.5)
    seen = (await shell.view(id=id)).data
    check("view", seen.output == "up\ngot this\n" and seen.command.startswith("echo up"), seen)
    for limit in ({"seconds": 1}, {"max_wait_seconds": 1}):
        since = time.monotonic()
        waited = (await shell.wait_for_process(id=id, **limit)).data
        check("wait_for_process", waited.status == "running" and time.monotonic() - since > 0.9, waited)
    listed = (await shell.list_sessions()).data.sessions[id]
    check("list_sessions", listed.current_command.startswith("echo up"), listed)
    check("one command at a time", (await shell.exec_command(command="true", id=id)).success is False)
    killed = (await shell.kill_process(id=id)).data
    check("kill_process", killed.status == "terminated", killed)
    for limit, status in (({"timeout": 0.5}, "running"), ({"no_change_timeout": 1}, "no_change_timeout")):
        late = (await shell.exec_command(command="sleep 60", id=id, **limit)).data
        check(status, late.status == status, late)
        await shell.kill_process(id=id)
    hard = (await shell.exec_command(command="echo x; sleep 60", id=id, hard_timeout=1.0)).data
    check("hard_timeout", (hard.status, hard.output) == ("hard_timeout", "x\n"), hard)
    check("update_session", (await shell.update_session(id=id, no_change_timeout=1)).success)
    quiet = (await shell.exec_command(command="sleep 60", id=id)).data
    check("a session's own limit", quiet.status == "no_change_timeout", quiet)
    await shell.kill_process(id=id)


async def sessions(client, tally):
    check, shell = tally.check, client.shell
    check("create_session without fields", (await shell.create_session()).data.session_id)
    stats = (await shell.get_session_stats()).data
    check("get_session_stats", stats.total_sessions >= 1 and stats.active_sessions >= 1, stats)
    check("no terminal page", (await shell.get_terminal_url()).success is False)
    for call in (shell.view(id="nobody"), shell.cleanup_session("nobody"), shell.kill_process(id="nobody")):
        check("a session that is not there", (await call).success is False)
    check("cleanup_all_sessions", (await shell.cleanup_all_sessions()).success)
    check("none is left", (await shell.list_sessions()).data.sessions == {})
