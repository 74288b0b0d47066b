"""Uses a client that openapi-python-client generated: exec, files, uploads and errors. Prints what it saw as JSON."""

import json
import os
import sys
from io import BytesIO

sys.path.insert(0, sys.argv[1])

from sandlot_api import AuthenticatedClient
from sandlot_api.api.exec_ import exec_
from sandlot_api.api.files import read_file, write_file
from sandlot_api.api.uploads import list_uploads, upload_files
from sandlot_api.models import Error, ExecRequest, ExecResult, FileStat, UploadFilesBody, UploadReply
from sandlot_api.types import File

THREAD = "python"
client = AuthenticatedClient(base_url=os.environ["SANDLOT_URL"], token=os.environ["SANDLOT_API_KEY"])

ran = exec_.sync(THREAD, client=client, body=ExecRequest(command="printf hello; exit 3"))
assert isinstance(ran, ExecResult), ran
written = write_file.sync(THREAD, client=client, path="a b.txt", body=File(payload=BytesIO(b"\x00\xffbytes")))
assert isinstance(written, FileStat), written
read = read_file.sync(THREAD, client=client, path="a b.txt")
assert isinstance(read, File), read
uploaded = upload_files.sync(
    THREAD, client=client, body=UploadFilesBody(files=[File(payload=BytesIO(b"up"), file_name="up.txt")])
)
assert isinstance(uploaded, UploadReply), uploaded
missing = read_file.sync(THREAD, client=client, path="missing.txt")
assert isinstance(missing, Error), missing
stranger = AuthenticatedClient(base_url=os.environ["SANDLOT_URL"], token="wrong")
refused = exec_.sync_detailed(THREAD, client=stranger, body=ExecRequest(command="true"))
assert isinstance(refused.parsed, Error), refused
listed = list_uploads.sync(THREAD, client=client)

print(
    json.dumps(
        {
            "stdout": ran.stdout,
            "exitCode": ran.exit_code,
            "sizeBytes": written.size_bytes,
            "content": read.payload.read().hex(),
            "uploads": [one.artifact_url for one in listed.files],
            "missing": missing.error.code,
            "refused": [refused.status_code, refused.parsed.error.code],
        }
    )
)
