"""The web application: which page answers which address, and the cache of pages."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dashboards.explorer.process import Worker
from dashboards.pages import audit, compare, explorer, latency, lineage, space, studies, study, trial, tuning
from dashboards.server import answers
from dashboards.server.parameters import BadRequest, NotFound, Parameters, joined
from dashboards.server.security import Guard, known_names
from dashboards.server.sources import SUFFIXES, Sources, StudyCache
from dashboards.view import Ask, View
from nas.errors import NasError

log = logging.getLogger("dashboards")
STATIC = Path(__file__).resolve().parent.parent / "static"
Page = Callable[[Ask], View]
TOP: dict[str, Page] = {
    "/": studies.view,
    "/index": studies.view,
    "/tuning": tuning.view,
    "/tuning/latency": latency.view,
    "/explorer": explorer.view,
}
OF_STUDY: dict[str, Page] = {
    "": study.view,
    "compare": compare.view,
    "space": space.view,
    "lineage": lineage.view,
    "audit": audit.view,
}


def application(
    places: Sequence[str] | None = None,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    costs: bool = True,
    root: str = "",
    allowed: Iterable[str] = (),
) -> Starlette:
    """The dashboard of these databases (None: those of the current folder), as an ASGI application.

    costs: compute the costs of architectures in a process with torch, if torch is installed. root: the path below which
    a proxy shows the pages, such as /tessera. allowed: more host names. Raises ValueError if `host` is not loopback and
    there is no token.
    """
    names = known_names(host, allowed)
    if "*" in names and not token:
        raise ValueError(f"A dashboard on {host} can be reached from other machines, so it needs a token.")
    sources, worker = Sources(places, root=root), Worker(enabled=costs)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await run_in_threadpool(worker.start)
        yield
        worker.close()
        sources.close()

    async def page(request: Request) -> Response:
        path, ending = split(request.scope["path"])
        parameters = Parameters(joined(request.query_params.multi_items()))
        status = 200
        try:
            written = await run_in_threadpool(_written, sources, worker, path, ending, parameters)
        except (NotFound, BadRequest, NasError) as error:
            status = 404 if isinstance(error, NotFound) else 400 if isinstance(error, BadRequest) else 503
            written = answers.problem(error, ending, root)
        except Exception:
            log.exception("%s failed", path)
            status, message = 500, Exception("This page failed. The terminal of `nas dashboard` says why.")
            written = answers.problem(message, ending, root)
        headers = {"cache-control": "no-store", "etag": written.etag}  # browsers keep no copy of private data
        if status == 200 and request.headers.get("if-none-match") == written.etag:
            return Response(status_code=304, headers=headers)
        return Response(written.content, status, headers, media_type=written.kind)

    made = Starlette(
        routes=[
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/login", lambda _request: RedirectResponse(f"{root}/", 303), methods=["GET", "POST"]),
            Route("/{path:path}", page),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=names, www_redirect=False),
            Middleware(Guard, token=token, root=root),
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=3),
        ],
        lifespan=lifespan,
    )
    made.state.sources, made.state.worker = sources, worker
    return made


def split(path: str) -> tuple[str, str]:
    """("/studies/a/b", ".json") of /studies/a/b.json; the ending may be empty."""
    for ending in SUFFIXES:
        if path.endswith(ending):
            return path.removesuffix(ending), ending
    return path, ""


def find(sources: Sources, path: str) -> tuple[Page, StudyCache | None]:
    """The page at this path, and the study that it is about. Raises NotFound or StoreError."""
    if path in TOP:
        return TOP[path], None
    words = path.strip("/").split("/")
    if words[0] == "studies" and (len(words) == 3 or (len(words) == 4 and words[3] in OF_STUDY)):
        return OF_STUDY["".join(words[3:])], sources.study(words[1], words[2])
    if words[0] == "studies" and len(words) == 5 and words[3] == "trials":
        return trial.view, sources.study(words[1], words[2])
    raise NotFound("There is no such page. The list of studies leads to all pages.")


def _written(sources: Sources, worker: Worker, path: str, ending: str, parameters: Parameters) -> answers.Written:
    """The content of a page. Pages of a study are kept for all browsers until the study changes."""
    view, study = find(sources, path)
    ask = Ask(sources=sources, parameters=parameters, study=study, path=path, worker=worker)
    if study is not None and not ending and not study.is_fast:
        view, study = studies.reading, None
    if study is None:
        return answers.written(view(ask), ending, ask)
    settled = True

    def make() -> answers.Written:
        nonlocal settled
        made = view(ask)
        settled = made.is_settled
        return answers.written(made, ending, ask)

    key = (path, parameters.key, ending)
    found = study.remember(key, make, of=study.look())
    if not settled:
        study.forget(key)
    return found
