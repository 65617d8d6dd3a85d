"""Shared by the tests of what is built: where programs, data and pulled models are, a file server.

Environment: POCKETLM_BUILD_DIR (default build), POCKETLM_BIN (the program; default pocketlm in there), POCKETLM_DATA
(the shared data; default ../shared/data), POCKETLM_REQUIRE_DATA=1 (missing data or models fail a test in place of
skipping it), POCKETLM_HOME (where pulled models are).
"""

import hashlib
import http.server
import os
import pathlib
import subprocess
import threading

import pytest

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]
BUILD_DIR = pathlib.Path(os.environ.get("POCKETLM_BUILD_DIR") or SOURCE_DIR / "build")
BIN = pathlib.Path(os.environ.get("POCKETLM_BIN") or BUILD_DIR / "pocketlm")
DATA_DIR = pathlib.Path(os.environ.get("POCKETLM_DATA") or SOURCE_DIR.parent / "shared" / "data")
DATA_REQUIRED = os.environ.get("POCKETLM_REQUIRE_DATA") == "1"


def missing(what):
    if DATA_REQUIRED:
        pytest.fail(f"missing: {what}")
    pytest.skip(f"missing: {what}")


def data_path(relative):
    """A file or folder of the shared data; skips (or fails) the test without it."""
    path = DATA_DIR / relative
    if not path.exists():
        missing(f"shared data {relative}")
    return path


def cache_folder():
    if os.environ.get("POCKETLM_HOME"):
        return pathlib.Path(os.environ["POCKETLM_HOME"])
    if os.environ.get("XDG_CACHE_HOME"):
        return pathlib.Path(os.environ["XDG_CACHE_HOME"]) / "pocketlm"
    return pathlib.Path.home() / ".cache" / "pocketlm"


def require_model(name):
    """The GGUF file of a pulled model; skips (or fails) the test without it."""
    path = cache_folder() / f"{name}.gguf"
    if not path.exists():
        missing(f"model {name} (pocketlm pull {name})")
    return path


def sha256(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="session")
def program():
    if not BIN.exists():
        missing(f"program {BIN} (make build)")
    return str(BIN)


@pytest.fixture
def run(program, tmp_path):
    """Runs the program: run("pull", "x", env={...}) -> CompletedProcess with bytes; .out and .err as text.

    POCKETLM_HOME is a fresh folder unless env says otherwise (None removes a variable).
    """

    def call(*arguments, env=None, stdin=b"", timeout=120, **keywords):
        environment = environment_for(tmp_path / "home", env)
        done = subprocess.run([program, *map(str, arguments)], input=stdin, env=environment, timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **keywords)
        done.out = done.stdout.decode("utf-8", "surrogateescape")
        done.err = done.stderr.decode("utf-8", "surrogateescape")
        return done

    return call


def environment_for(home, changes=None):
    """This process's environment without what would lead downloads elsewhere."""
    environment = {key: value for key, value in os.environ.items()
                   if not key.startswith(("PIP_", "HF_")) and not key.lower().endswith("_proxy")}
    environment.update({"POCKETLM_HOME": str(home), "PIP_CONFIG_FILE": os.devnull})
    for key, value in (changes or {}).items():
        if value is None:
            environment.pop(key, None)
        else:
            environment[key] = str(value)
    return environment


class Resource:
    """One path of the file server. The knobs are the ways in which servers and networks misbehave."""

    def __init__(self, body=b"", content_type="application/octet-stream", status=200):
        self.body = body
        self.content_type = content_type
        self.status = status
        self.etag = '"v1"'
        self.ranges = True  # honour Range
        self.redirect = None
        self.cuts = []  # bytes after which successive connections break, counted in the body sent; then whole
        self.failures = []  # statuses of successive requests before things go well
        self.declared_length = None  # a wrong Content-Length
        self.send_length = True
        self.shift_range = 0  # answers another range than asked for


class FileServer:
    def __init__(self):
        self.resources = {}
        self.requests = []  # (path, headers)
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # noqa: N802 (the name that http.server wants)
                owner.answer(self)

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, path, body=b"", **keywords):
        resource = Resource(body, **keywords)
        self.resources[path] = resource
        return resource

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, handler):
        self.requests.append((handler.path, dict(handler.headers)))
        resource = self.resources.get(handler.path.split("?")[0])
        if resource is None:
            handler.send_error(404)
        elif resource.failures:
            handler.send_error(resource.failures.pop(0))
        elif resource.redirect:
            handler.send_response(302)
            handler.send_header("Location", resource.redirect)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        else:
            self.send(handler, resource)

    @staticmethod
    def send(handler, resource):
        begin, status = 0, resource.status
        wanted = handler.headers.get("Range")
        validator = handler.headers.get("If-Range")
        if wanted and resource.ranges and validator in (None, resource.etag):
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            if begin >= len(resource.body):
                handler.send_error(416)
                return
            begin += resource.shift_range
            status = 206
        body = resource.body[begin:]
        handler.send_response(status)
        handler.send_header("Content-Type", resource.content_type)
        if resource.send_length:
            handler.send_header("Content-Length", str(resource.declared_length or len(body)))
        if resource.etag:
            handler.send_header("ETag", resource.etag)
        if status == 206:
            handler.send_header("Content-Range", f"bytes {begin}-{len(resource.body) - 1}/{len(resource.body)}")
        handler.end_headers()
        if resource.cuts:
            body = body[: resource.cuts.pop(0)]
        handler.wfile.write(body)
        handler.close_connection = True


@pytest.fixture
def server():
    file_server = FileServer()
    yield file_server
    file_server.close()
