"""Protection of the server: which requests are answered, and what a browser may do with the response.

A server on another address than loopback needs a token. A browser sends it once, as `?token=...` or in the form, and
then has a cookie that proves it. Programs send `Authorization: Bearer TOKEN`. A page of another site could reach a
loopback server under its own host name (DNS rebinding), so requests for unknown host names are rejected.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import parse_qsl, quote, urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "tessera"
MOST_PATH, MOST_QUERY = 2000, 40_000  # characters; a text of the explorer may need three for each character
METHODS = ("GET", "HEAD", "POST")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
LOGIN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tessera: token</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="/static/style.css">
</head><body><main class="narrow"><h1>This dashboard needs a token</h1>
<p>The person who started <code>nas dashboard</code> knows it.</p>
<form method="post" action="/login"><label>Token <input type="password" name="token" autocomplete="current-password"
required></label> <button>Open</button></form></main></body></html>"""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def known_names(host: str, names: Iterable[str] = ()) -> frozenset[str] | None:
    """The host names that requests may have; None allows all, because a server on such a host needs a token."""
    if not is_loopback(host):
        return None
    return frozenset({"localhost", "127.0.0.1", "[::1]", host, *names})


class Guard:
    """Middleware: checks host, token, method and size of a request, and adds the headers to every response."""

    def __init__(self, app: ASGIApp, names: frozenset[str] | None, token: str | None):
        self.app, self.names, self.token = app, names, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = list(message.get("headers", []))
                known = {name for name, _ in given}
                ours = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = given + [pair for pair in ours if pair[0] not in known]
            await send(message)

        refused = await self._refused(Request(scope, receive))
        await (self.app if refused is None else refused)(scope, receive, guarded)

    async def _refused(self, request: Request) -> Response | None:
        """The response to a request that is rejected; None if it may pass."""
        host = request.headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if self.names is not None and name not in self.names:
            return PlainTextResponse("Unknown host. Open the address that `nas dashboard` printed.", 421)
        path: str = request.scope["path"]  # not from request.url, which depends on what the Host header says
        if len(path) > MOST_PATH or len(request.scope["query_string"]) > MOST_QUERY:
            return PlainTextResponse("The address is too long.", 414)
        if request.method not in METHODS:
            return PlainTextResponse("Only GET, HEAD and POST are served.", 405, {"allow": ", ".join(METHODS)})
        if request.method == "POST" and not _same_origin(request, host):
            return PlainTextResponse("This form comes from another site.", 403)
        if self.token is None or path == "/static/style.css":
            return None
        return await self._without_token(request)

    async def _without_token(self, request: Request) -> Response | None:
        assert self.token is not None
        path: str = request.scope["path"]
        query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        if _equal(dict(query).get("token", ""), self.token):  # even with the cookie: links must not contain the token
            rest = urlencode([pair for pair in query if pair[0] != "token"])
            place = "/" + quote(path.lstrip("/\\"))  # never //host, which would leave this server
            return self._entered(place + (f"?{rest}" if rest else ""), request)
        written = request.headers.get("authorization", "").encode("latin-1")  # a token need not be ASCII
        given = written.decode("utf-8", "replace").removeprefix("Bearer ")
        if _equal(given, self.token) or _equal(request.cookies.get(COOKIE, ""), _kept(self.token)):
            return None
        if request.method == "POST" and path == "/login":
            form = dict(parse_qsl((await _body(request)).decode("utf-8", "replace")))
            if _equal(form.get("token", ""), self.token):
                return self._entered("/", request)
        # With no-referrer a browser sends "Origin: null" with a form, as if the form were on another site.
        return Response(LOGIN, 401, {"referrer-policy": "same-origin"}, media_type="text/html")

    def _entered(self, address: str, request: Request) -> Response:
        assert self.token is not None
        answer = RedirectResponse(address, 303)
        secure = request.url.scheme == "https"
        answer.set_cookie(COOKIE, _kept(self.token), httponly=True, samesite="strict", secure=secure)
        return answer


async def _body(request: Request, most: int = 4096) -> bytes:
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > most:
            return b""
    return found


def _same_origin(request: Request, host: str) -> bool:
    origin = request.headers.get("origin")
    if origin is None:
        return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    return origin.partition("://")[2].lower() == host


def _kept(token: str) -> str:
    """The value of the cookie: it proves that the browser had the token, but does not contain it."""
    return hmac.new(token.encode("utf-8", "replace"), b"tessera dashboard", hashlib.sha256).hexdigest()


def _equal(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode("utf-8", "replace"), b.encode("utf-8", "replace"))
