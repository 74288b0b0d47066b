"""Goes through everything with one form of the client and one way of showing the key.

run.py <url> waiting|asynchronous own-header|bearer|query|none <key>
"""

import asyncio
import sys
import traceback
import uuid

from agent_sandbox import Sandbox
from agent_sandbox.core.api_error import ApiError
from bash import bash
from client import Client, Tally
from deerflow import deerflow
from files import files
from shell import sandbox, shell
from watches import watches

PLACES = {
    "own-header": lambda key: ({"X-AIO-API-Key": key}, {}),
    "bearer": lambda key: ({"Authorization": f"Bearer {key}"}, {}),
    "query": lambda key: ({}, {"api_key": key}),
    "none": lambda key: ({}, {}),
}


async def everything(tally, url, form, place, key):
    headers, query = PLACES[place](key)
    client = Client(tally, form, url, headers, query)
    workspace = await sandbox(client, tally)
    root = f"{workspace}/client-{uuid.uuid4().hex[:8]}"
    await client.bash.exec(command=f"mkdir {root}")
    try:
        await shell(client, tally, root)
        await bash(client, tally, root)
        await files(client, tally, root)
        await watches(client, tally, root, url, headers, query)
        await deerflow(client, tally, root)
    finally:
        await client.bash.exec(command=f"rm -rf {root}")
    if place != "none":
        refused(tally, url)


def refused(tally, url):
    for headers in ({}, {"X-AIO-API-Key": "wrong"}):
        try:
            Sandbox(base_url=url, headers=headers).sandbox.get_context()
            tally.check("a wrong key", False)
        except ApiError as error:
            tally.check("a wrong key", error.status_code == 401, error)


def main():
    url, form, place, key = sys.argv[1:]
    tally = Tally()
    try:
        asyncio.run(everything(tally, url, form, place, key))
    except Exception:
        tally.check("the run", False, traceback.format_exc()[-2_000:])
    tally.check("every method was called", tally.never_called() == [], tally.never_called())
    print(f"{form}, key: {place}: {tally.passed} held, {len(tally.failed)} did not")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
