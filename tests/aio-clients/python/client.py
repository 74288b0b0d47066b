"""The original client with one interface for both of its forms, and a tally of checks.

Every response is checked: a field of the client's models that the server omits is a failure, and so is an unknown one.
"""

import inspect

import pydantic
from agent_sandbox import AsyncSandbox, Sandbox
from agent_sandbox.core.api_error import ApiError

GROUPS = ("sandbox", "shell", "bash", "file")


class Tally:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.called = set()

    def check(self, name, holds, seen=None):
        if holds:
            self.passed += 1
            return
        self.failed.append(name)
        print(f"FAILED {name}: {str(seen)[:800]}")

    def compare(self, name, answer):
        """Compares the fields of a response with those of its model."""
        if isinstance(answer, pydantic.BaseModel):
            model = type(answer)
            unknown = set(answer.model_extra or {})
            absent = set(model.model_fields) - answer.model_fields_set
            if unknown or absent:
                self.check(f"{name}: fields of {model.__name__}", False, f"unknown {unknown}, absent {absent}")
            for field in model.model_fields:
                self.compare(name, getattr(answer, field))
        elif isinstance(answer, list):
            for entry in answer:
                self.compare(name, entry)
        elif isinstance(answer, dict):
            for entry in answer.values():
                self.compare(name, entry)

    def never_called(self):
        methods = {
            f"{group}.{name}"
            for group in GROUPS
            for name, _ in inspect.getmembers(type(getattr(Sandbox(base_url="http://nobody"), group)), inspect.isfunction)
            if not name.startswith("_")
        }
        return sorted(methods - self.called)


class Client:
    """`await client.shell.exec_command(…)`, for either form."""

    def __init__(self, tally, form, url, headers, query):
        kind = {"waiting": Sandbox, "asynchronous": AsyncSandbox}[form]
        self._client = kind(base_url=url, headers=headers, timeout=120)
        self._tally = tally
        self._query = query

    def __getattr__(self, group):
        return _Group(self, group)


class _Group:
    def __init__(self, client, name):
        self._client = client
        self._name = name

    def __getattr__(self, name):
        tally, query = self._client._tally, self._client._query
        method = getattr(getattr(self._client._client, self._name), name)

        async def call(*args, **fields):
            tally.called.add(f"{self._name}.{name}")
            if query:
                fields.setdefault("request_options", {})["additional_query_parameters"] = query
            answer = method(*args, **fields)
            if inspect.isawaitable(answer):
                answer = await answer
            if inspect.isasyncgen(answer):
                return b"".join([chunk async for chunk in answer])
            if inspect.isgenerator(answer):
                return b"".join(answer)
            # A failure's data has another type than the model's.
            if getattr(answer, "success", True) is not False:
                tally.compare(f"{self._name}.{name}", answer)
            return answer

        return call


async def status_of(call):
    """The status of an HTTP error; the body with it. A failed operation counts as 200."""
    try:
        await call
    except ApiError as error:
        return error.status_code, error.body
    except pydantic.ValidationError:
        # Models of version 0.0.30 do not know the data of a failed file operation, and say so.
        return 200, "unknown to the client"
    return 200, None


async def fails(call):
    """Whether the client reports an operation as failed."""
    try:
        return (await call).success is False
    except pydantic.ValidationError as error:
        return "data" in str(error)
