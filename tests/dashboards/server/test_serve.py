"""The server of the pages as a process: its address, open pages, and its end."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dashboards.server.serve import prepare
from nas.errors import NasError, StoreError, UsageError

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "dashboard.md"
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
WAIT = 30  # seconds


def serve(*arguments: str) -> tuple[subprocess.Popen, str]:
    """The command in a process, and the address that it prints."""
    command = [sys.executable, "-m", "nas", "dashboard", "--port", "0", *arguments]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    return server, server.stderr.readline().split()[4]


def test_ctrl_c_ends_a_server_with_an_open_connection_without_an_error(databases):
    server, printed = serve("--storage", databases["new"])
    try:
        address = urlsplit(printed)
        with socket.create_connection((address.hostname, address.port), timeout=WAIT) as page:
            page.sendall(b"GET /studies/new/new HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert page.recv(15) == b"HTTP/1.1 200 OK"
            server.send_signal(signal.SIGINT)
            _, told = server.communicate(timeout=WAIT)
    finally:
        server.kill()

    assert server.returncode == 0
    assert "Traceback" not in told


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def wait_for(port: int, process: subprocess.Popen) -> None:
    """Until the process accepts connections."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", port)).close()
        time.sleep(0.05)
    raise TimeoutError(f"Port {port} was not opened.")


@pytest.mark.skipif(NGINX is None, reason="no nginx: apt install nginx-light")
def test_the_nginx_example_of_the_guide_shows_the_pages_below_their_prefix(databases, tmp_path):
    guide = GUIDE.read_text(encoding="utf-8")
    (command,) = re.findall(r"^    (nas dashboard .*--root-path.*)$", guide, re.M)
    (example,) = re.findall(r"```nginx\n(.*?)```", guide, re.S)
    server, printed = serve("--storage", databases["new"], *command.split()[2:])
    port = free_port()
    example = example.replace("127.0.0.1:8765", urlsplit(printed).netloc)
    example = example.replace("listen 80;", f"listen 127.0.0.1:{port};")
    folders = "".join(
        f"{name}_temp_path {tmp_path}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;" if os.getuid() == 0 else ""  # else it could not read the folder
    (tmp_path / "nginx.conf").write_text(
        f"{user} pid {tmp_path}/pid; error_log {tmp_path}/errors; daemon off; events {{}}\n"
        f"http {{ access_log off; {folders}\n{example} }}"
    )
    proxy = subprocess.Popen([NGINX, "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
    try:
        (name,) = re.findall(r"server_name (\S+);", example)

        def get(path: str) -> str:
            asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": name})
            return urllib.request.urlopen(asked, timeout=WAIT).read().decode()

        wait_for(port, proxy)
        page = get("/tessera/studies/new/new")
        links = set(re.findall(r'(?:href|src)="(/[^"#?]*)', page))
        assert len(links) > 10 and {link for link in links if not link.startswith("/tessera/")} == set()
        for link in links:
            get(link)
    finally:
        for each in (proxy, server):
            each.terminate()
            each.wait(WAIT)


def test_the_study_may_be_in_any_of_several_databases(databases):
    served = prepare("failing", [databases["finished"], databases["failing"]], "127.0.0.1", 0, None)
    served.listening.close()

    assert urlsplit(served.address).path == "/studies/failing/failing"
    with pytest.raises(UsageError, match="nope"):
        prepare("nope", [databases["finished"], databases["failing"]], "127.0.0.1", 0, None)


def test_what_is_no_database_and_a_port_in_use_are_told_at_once(databases):
    with pytest.raises(StoreError, match="foo"):
        prepare(None, ["foo://bar"], "127.0.0.1", 0, None)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(NasError, match="another port with --port"):
        prepare(None, [databases["new"]], "127.0.0.1", taken.getsockname()[1], None)
