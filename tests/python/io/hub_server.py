"""A model hub on loopback, as much of one as scaffolding.hub talks to, with faults on demand."""

import hashlib
import http.server
import json
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


_ports = set()


def on_a_fresh_port(listen):
    """What `listen` opens, on a port that nothing here had before: the client remembers for half a minute that nobody
    was at an address, and systems give the ports of closed servers to new ones."""
    others = []
    while True:
        opened = listen()
        port = getattr(opened, "socket", opened).getsockname()[1]
        if port not in _ports:
            break
        others.append(opened)  # held, so that the system names another
    for other in others:
        (other.server_close if hasattr(other, "server_close") else other.close)()
    _ports.add(port)
    return opened


def etag_of(data, lfs):
    return hashlib.sha256(data).hexdigest() if lfs else hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Server:
    """Repositories as {"org/name": {"path": bytes}}. Files over 100 bytes are "large": they have a SHA-256 and lie on
    another server, to which a redirect leads. Faults: see the attributes."""

    def __init__(self, repos, commit=COMMIT):
        self.repos, self.commit = repos, commit
        self.requests = []  # (server, method, path, headers)
        self.fail = {}  # path of a URL: statuses to answer with before it works
        self.cut = {}  # file: lists of the bytes after which the connection is cut, one for each request
        self.corrupt = {}  # file: how many answers have a wrong byte
        self.errors = {}  # "org/name": (status, X-Error-Code)
        self.extra_files = []  # names that the listing has besides
        self.endless = {}  # file: how many bytes are sent of it at most, without saying how many
        self.store_at = None  # where the hub says that large files lie
        self.headers = {}  # instead of those that the hub would send
        self.ignore_range = False
        self.token = None  # that files need
        self.slow = 0.0  # seconds before each piece of a body
        self.lock = threading.Lock()
        self.hub, self.store = self._serve("hub"), self._serve("store")
        self.url = f"http://127.0.0.1:{self.hub.server_port}"
        self.store_url = f"http://127.0.0.1:{self.store.server_port}"

    def close(self):
        for server in (self.hub, self.store):
            server.shutdown()
            server.server_close()

    def sent(self, server, method):
        return [(path, headers) for s, m, path, headers in self.requests if s == server and m == method]

    def _serve(self, name):
        owner = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                owner.answer(name, self, True)

            def do_HEAD(self):
                owner.answer(name, self, False)

        server = on_a_fresh_port(lambda: http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return server

    def answer(self, server, request, with_body):
        path = urllib.parse.urlsplit(request.path).path
        with self.lock:
            self.requests.append((server, request.command, request.path, dict(request.headers)))
            statuses = self.fail.get(path) or self.fail.get(server)
            status = statuses.pop(0) if statuses else None
        if status:
            return self.reply(request, status, {"Retry-After": "0"}, b"trouble")
        parts = urllib.parse.unquote(path).strip("/").split("/")
        if server == "store":
            repo, name = "/".join(parts[:2]), "/".join(parts[2:])
            return self.send_file(request, name, self.repos[repo][name], {}, with_body)
        api = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if api else parts[:2])
        if repo in self.errors:
            return self.reply(request, self.errors[repo][0], {"X-Error-Code": self.errors[repo][1]}, b"no")
        if repo not in self.repos:
            return self.reply(request, 401, {"X-Error-Code": "RepoNotFound"}, b"no")
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return self.reply(request, 401, {}, b"no")
        revision = urllib.parse.unquote(path.strip("/").split("/")[5 if api else 3])
        if revision not in ("main", "v1.0", self.commit):
            return self.reply(request, 404, {"X-Error-Code": "RevisionNotFound"}, b"no")
        if api:
            content = self.tree(repo) if parts[4] == "tree" else self.listing(repo)
            return self.reply(request, 200, {}, json.dumps(content).encode())
        name, commit = "/".join(parts[4:]), {"X-Repo-Commit": self.commit}
        if name not in self.repos[repo]:
            return self.reply(request, 404, {"X-Error-Code": "EntryNotFound", **commit}, b"no")
        data = self.repos[repo][name]
        lfs = len(data) > 100
        if not lfs:
            return self.send_file(request, name, data, {"ETag": f'"{etag_of(data, lfs)}"', **commit}, with_body)
        headers = {
            "X-Linked-Etag": f'"{etag_of(data, lfs)}"',
            "X-Linked-Size": str(len(data)),
            "ETag": '"of-the-redirect"',
            **commit,
        }
        self.reply(
            request,
            302,
            {"Location": f"{self.store_at or self.store_url}/{repo}/{name}?signature=x", **headers},
            b"moved",
        )

    def listing(self, repo):
        files = []
        for name, data in self.repos[repo].items():
            lfs = (
                {"lfs": {"sha256": etag_of(data, True), "size": len(data), "pointerSize": 100}}
                if len(data) > 100
                else {}
            )
            files.append({"rfilename": name, "size": len(data), "blobId": etag_of(data, False), **lfs})
        return {
            "id": repo,
            "sha": self.commit,
            "siblings": files + [{"rfilename": name, "size": 1, "blobId": "0" * 40} for name in self.extra_files],
        }

    def tree(self, repo):
        """For huggingface_hub, which asks for the list in another way (tests/golden/check_hub_cache.py)."""
        files = []
        for f in self.listing(repo)["siblings"]:
            lfs = {"lfs": {"oid": f["lfs"]["sha256"], "size": f["size"], "pointerSize": 100}} if "lfs" in f else {}
            files.append({"type": "file", "path": f["rfilename"], "size": f["size"], "oid": f["blobId"], **lfs})
        return files

    def send_file(self, request, name, data, headers, with_body):
        first, status = 0, 200
        if (wanted := request.headers.get("Range")) and not self.ignore_range:
            first, status = int(wanted.removeprefix("bytes=").rstrip("-")), 206
            if first >= len(data):
                return self.reply(request, 416, {}, b"")
            headers = {**headers, "Content-Range": f"bytes {first}-{len(data) - 1}/{len(data)}"}
        if name in self.endless:
            return self.send_endlessly(request, headers, self.endless[name])
        body = data[first:]
        with self.lock:
            cut = self.cut[name].pop(0) if with_body and self.cut.get(name) else None
            if with_body and self.corrupt.get(name, 0) > 0:
                self.corrupt[name] -= 1
                body = bytes([body[0] ^ 1]) + body[1:]
        self.reply(request, status, headers, body, cut)

    def send_endlessly(self, request, headers, most):
        request.send_response(200)
        for key, value in {**headers, "Connection": "close"}.items():
            request.send_header(key, value)
        request.end_headers()
        request.close_connection = True
        try:
            for _ in range(0, most if request.command == "GET" else 0, 1 << 20):
                request.wfile.write(bytes(1 << 20))
        except OSError:
            pass  # hung up on

    def reply(self, request, status, headers, body, cut=None):
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        for key, value in {**headers, **self.headers}.items():
            request.send_header(key, value)
        request.end_headers()
        if request.command == "HEAD":
            return
        if self.slow:
            for at in range(0, len(body), 1000):
                threading.Event().wait(self.slow)
                request.wfile.write(body[at : at + 1000])
            return
        request.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            request.close_connection = True
