"""`/v1/file/watch`."""

import asyncio

import httpx
from client import status_of


async def watches(client, tally, root, url, headers, query):
    check, file = tally.check, client.file
    place = f"{root}/watched"
    await file.write_file(file=f"{place}/first", content="")
    wish = {"recursive": True, "exclude": [".git"], "debounce": 50, "include_patterns": ["*.log"]}
    watch = (await file.watch_create(path=place, **wish))["data"]["watcher_id"]
    check("watch_list", watch in [one["watcher_id"] for one in (await file.watch_list())["data"]])
    for name in ("1.log", "1.txt"):
        await file.write_file(file=f"{place}/{name}", content="x")
    first = await file.watch_poll(watch, since=0, limit=10, timeout=10)
    check("watch_poll", [one["relative_path"] for one in first["events"]] == ["1.log"], first)
    await asyncio.sleep(0.3)
    cursor = (await file.watch_poll(watch))["cursor"]
    check("watch_poll, nothing new", (await file.watch_poll(watch, since=cursor, timeout=1))["events"] == [])
    await file.write_file(file=f"{place}/2.log", content="x")
    second = await file.watch_poll(watch, since=cursor, timeout=10)
    check("watch_poll since", [one["relative_path"] for one in second["events"]] == ["2.log"], second)
    there = await file.watch_wait(path=f"{place}/2.log", timeout=10, event_types=["create"])
    check("watch_wait", there["event"]["path"] == f"{place}/2.log", there)
    status, _ = await status_of(file.watch_wait(path=f"{place}/never", timeout=1))
    check("watch_wait in vain", status == 408, status)
    lines = streamed(f"{url}/v1/file/watch/{watch}/events", headers, query)
    check("events", "event: watch_started" in lines and any(line.startswith(f"id: {watch}:") for line in lines), lines)
    check("watch_stop", (await file.watch_stop(watch))["data"]["status"] == "stopped")
    # The client reads events as one response, which an endless stream is not: so only its end is requested.
    for call in (file.watch_stop(watch), file.watch_events(watch)):
        status, _ = await status_of(call)
        check("a watch that is not there", status == 404, status)


def streamed(url, headers, query):
    """Lines of a stream, until one tells of the second file."""
    lines = []
    with httpx.stream("GET", url, headers=headers, params=query, timeout=10) as stream:
        for line in stream.iter_lines():
            lines.append(line)
            if "2.log" in line:
                return lines
    return lines
