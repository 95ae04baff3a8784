"""Who may use the server, and what a browser may do with its answers.

A server on another address than loopback needs a token. A browser sends it once, as `?token=...` or in the form, and
then has a cookie that proves it. Programs send `Authorization: Bearer TOKEN`. A page of another site could reach a
loopback server under its own host name (DNS rebinding), so only known host names are answered.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "tessera"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
LOGIN = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tessera: token</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="{root}/static/style.css">
</head><body><main class="narrow"><h1>This dashboard needs a token</h1>
<p>The person who started <code>nas dashboard</code> knows it.</p>
<form method="post" action="{root}/login"><label>Token <input type="password" name="token"
autocomplete="current-password" required></label> <button>Open</button></form></main></body></html>"""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def known_names(host: str, more: Iterable[str] = ()) -> list[str]:
    """The host names that requests may have. All, if other machines can reach `host`: it needs a token then."""
    return ["localhost", "127.0.0.1", "[::1]", host, *more] if is_loopback(host) else ["*"]


class Guard:
    """Middleware: removes the prefix of a proxy, checks the token, and adds the headers to every response."""

    def __init__(self, app: ASGIApp, token: str | None, root: str):
        self.app, self.token, self.root = app, token, root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-cache")
            await send(message)

        path = scope["path"]
        if path.startswith(f"{self.root}/"):  # a proxy may also have removed it
            scope = {**scope, "path": path.removeprefix(self.root), "raw_path": None}
        answer = await self._without_token(Request(scope, receive)) if self.token is not None else None
        await (self.app if answer is None else answer)(scope, receive, guarded)

    async def _without_token(self, request: Request) -> Response | None:
        """The answer to a request that does not prove the token; None if it does."""
        assert self.token is not None
        path: str = request.scope["path"]  # not from request.url, which depends on what the Host header says
        if path == "/static/style.css":
            return None
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
        return Response(LOGIN.format(root=self.root), 401, media_type="text/html")

    def _entered(self, address: str, request: Request) -> Response:
        assert self.token is not None
        answer = RedirectResponse(self.root + address, 303)
        answer.set_cookie(
            COOKIE,
            _kept(self.token),
            path=self.root or "/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer


async def _body(request: Request, most: int = 4096) -> bytes:
    """The body of a request; empty if it is too long, since anyone may send one."""
    found = b""
    async for part in request.stream():
        found += part
        if len(found) > most:
            return b""
    return found


def _kept(token: str) -> str:
    """The value of the cookie: it proves that the browser had the token, but does not contain it."""
    return hmac.new(token.encode("utf-8", "replace"), b"tessera dashboard", hashlib.sha256).hexdigest()


def _equal(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode("utf-8", "replace"), b.encode("utf-8", "replace"))
