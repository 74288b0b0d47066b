"""`/v1/bash`."""

import asyncio
import time
import uuid

FILL = "head -c 60000 /dev/zero | tr '\\0' x"


async def bash(client, tally, root):
    check, bash = tally.check, client.bash
    done = (await bash.exec(command="echo $A; echo err >&2; exit 4", env={"A": "v", "B": None}, hard_timeout=600.0)).data
    check("exec", (done.stdout, done.stderr, done.exit_code, done.offset) == ("v\n", "err\n", 4, 2), done)
    made = (await bash.create_session(exec_dir=root)).data
    check("create_session", (made.working_dir, made.status) == (root, "ready") and made.created_at.tzinfo, made)
    session = made.session_id
    nothing = (await bash.output(session_id=session)).data
    check("no output yet", (nothing.stdout, nothing.command) == ("", None), nothing)
    for directory in (None, "/tmp", None):
        where = {} if directory is None else {"exec_dir": directory}
        out = (await bash.exec(command="pwd", session_id=session, **where)).data.stdout
        check("exec_dir stays", out in (f"{root}\n", "/tmp\n"), out)
    check("exec_dir stayed", out == "/tmp\n", out)
    await followed(client, tally, session)
    for limit, status in (({"timeout": 0.5}, "running"), ({"hard_timeout": 0.5}, "timed_out")):
        late = (await bash.exec(command="sleep 60", **limit)).data
        check(status, late.status == status, late)
    check("output is cut", 49_000 < len((await bash.exec(command=FILL)).data.stdout) < 51_000)
    check("output is not cut", len((await bash.exec(command=FILL, max_output_length=0)).data.stdout) == 60_000)
    await snapshot(client, tally, root)
    check("close_session", (await bash.close_session(session)).success)
    check("a closed session", (await bash.output(session_id=session)).success is False)
    check("create_session without fields", (await bash.create_session()).data.session_id)


async def followed(client, tally, session):
    check, bash = tally.check, client.bash
    command = "echo one; read x; echo two $x; sleep 60"
    begun = (await bash.exec(command=command, session_id=session, async_mode=True)).data
    check("async_mode", begun.status == "running", begun)
    id = begun.command_id
    first = (await bash.output(session_id=session, command_id=id, wait=True, wait_timeout=10.0)).data
    check("output", (first.stdout, first.offset, first.command.status) == ("one\n", 4, "running"), first)
    check("write", (await bash.write(session_id=session, input="in\n")).success)
    second = (await bash.output(session_id=session, offset=4, stderr_offset=0, wait=True)).data
    check("output from an offset on", second.stdout == "two in\n", second)
    since = time.monotonic()
    third = (await bash.output(session_id=session, offset=second.offset, wait=True, wait_timeout=1.0)).data
    check("output that does not come", third.stdout == "" and time.monotonic() - since > 0.9, third)
    listed = [one for one in (await bash.sessions()).data if one.session_id == session][0]
    check("sessions", (listed.current_command, listed.command_count) == (command, 4), listed)
    check("kill", (await bash.kill(session_id=session)).success)
    await ended(client, tally, session, id)
    for signal in ("SIGINT", "SIGKILL"):
        begun = (await bash.exec(command="exec sleep 60", session_id=session, async_mode=True)).data
        check(signal, (await bash.kill(session_id=session, signal=signal)).success)
        await ended(client, tally, session, begun.command_id)


async def ended(client, tally, session, command):
    for _ in range(100):
        told = (await client.bash.output(session_id=session, command_id=command)).data.command
        if told.status != "running":
            return tally.check("what was killed has ended", told.status in ("killed", "completed"), told)
        await asyncio.sleep(0.05)
    tally.check("what was killed has ended", False, told)


async def snapshot(client, tally, root):
    path = f"{root}/snapshot.sh"
    await client.file.write_file(file=path, content="greet() { echo hello; }\n")
    session = f"snapshot-{uuid.uuid4().hex}"
    await client.bash.create_session(session_id=session, exec_dir=root, snapshot_path=path)
    out = (await client.bash.exec(command="greet", session_id=session)).data.stdout
    tally.check("snapshot_path", out == "hello\n", out)
