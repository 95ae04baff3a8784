"""The web application: which page answers which address."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from dashboards.explorer.process import Worker
from dashboards.pages import asked, reading, registry, studies
from dashboards.server import answers
from dashboards.server.events import Drawn, Events, Stream, Subject
from dashboards.server.files import KINDS, files
from dashboards.server.parameters import BadRequest, NotFound, Parameters, joined
from dashboards.server.parts import SHOWN
from dashboards.server.security import Guard, known_names
from dashboards.server.sources import PARTS, SUFFIXES, Sources, StudyCache
from nas.errors import NasError

log = logging.getLogger("dashboards")


def application(
    places: Sequence[str] | None = None,
    *,
    host: str = "127.0.0.1",
    token: str | None = None,
    costs: bool = True,
    is_default: bool | None = None,
) -> Starlette:
    """The dashboard of these databases (None: those of the current folder), as an ASGI application.

    costs: compute the costs of architectures in a process with torch, if torch is installed. is_default: as in
    `Sources`. Raises ValueError if `host` is not loopback and there is no token.
    """
    names = known_names(host)
    if names is None and not token:
        raise ValueError(f"A dashboard on {host} can be reached from other machines, so it needs a token.")
    sources, events, worker = Sources(places, is_default=is_default), Events(), Worker(enabled=costs)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await run_in_threadpool(worker.start)
        yield
        worker.close()
        events.close()
        sources.close()

    async def page(request: Request) -> Response:
        path, ending = split(request.scope["path"])
        parameters = Parameters(joined(request.query_params.multi_items()))
        try:
            if ending == ".events":
                return await stream(request, path, parameters)
            kind = "" if ending == PARTS else ending
            found = _recent(sources, path, kind, parameters)
            if found is None:
                found = await run_in_threadpool(_content, sources, worker, path, kind, parameters)
            if ending == PARTS:
                found = await run_in_threadpool(answers.changed, found, request.headers.get(SHOWN, ""))
            return answers.sent(request, found)
        except NotFound as error:
            return answers.problem(request, error, 404, ending)
        except BadRequest as error:
            return answers.problem(request, error, 400, ending)
        except NasError as error:
            return answers.problem(request, error, 503, ending)
        except Exception:
            log.exception("%s failed", path)
            message = Exception("This page failed. The terminal of `nas dashboard` says why.")
            return answers.problem(request, message, 500, ending)

    async def stream(request: Request, path: str, parameters: Parameters) -> Response:
        """The changes of a page as server-sent events."""
        if not events.enter():
            return PlainTextResponse("Too many open pages.", 503)
        try:
            subject = await run_in_threadpool(_subject, sources, path)
            draw = partial(_drawn, sources, worker, path, parameters)
            if request.method == "HEAD":  # a stream does not end, and a HEAD request has no body
                await run_in_threadpool(draw)
                events.leave()
                return Response(headers={"cache-control": "no-store"}, media_type="text/event-stream")
            follower = await events.follow(subject, (path, parameters.key), draw)
            return Stream(events, follower, is_packed="gzip" in request.headers.get("accept-encoding", ""))
        except BaseException:
            events.leave()
            raise

    made = Starlette(
        routes=[
            Route("/static/{name}", static),
            Route("/login", lambda _request: RedirectResponse("/", 303), methods=["GET", "POST"]),
            Route("/{path:path}", page, methods=["GET", "HEAD", "POST"]),
        ],
        middleware=[Middleware(Guard, names=names, token=token)],
        lifespan=lifespan,
    )
    made.state.sources, made.state.events, made.state.worker = sources, events, worker
    return made


def split(path: str) -> tuple[str, str]:
    """("/studies/a/b", ".json") of /studies/a/b.json; the ending may be empty."""
    for ending in SUFFIXES:
        if path.endswith(ending):
            return path.removesuffix(ending) or "/", ending
    return path, ""


def _recent(sources: Sources, path: str, ending: str, parameters: Parameters) -> answers.Packed | None:
    """The same page from the cache, if it is recent. All browsers that follow a study ask at the same time."""
    words = path.split("/")
    study = sources.known(*words[2:4]) if words[1:2] == ["studies"] and len(words) > 3 else None
    return study.recall((path, parameters.key, ending)) if study is not None else None


def _prepare(sources: Sources, worker: Worker, path: str, choices: Iterable[Mapping[str, str]] = ({},)) -> None:
    """Compute the results that the pages of a study and of its trials need, by making their JSON.

    choices: the parameters of each run.
    """
    for chosen in choices:
        for page in ("", "/lineage"):
            _content(sources, worker, path + page, ".json", Parameters(dict(chosen)))


def _other_objectives(study: StudyCache) -> list[dict[str, str]]:
    """The parameters that choose each objective except the first on the pages of a study."""
    return [{"y": each["name"], "objective": each["name"]} for each in study.study.objectives[1:]]


def _subject(sources: Sources, path: str) -> Subject:
    """What a page is about: one study, or all studies. Raises NotFound or StoreError."""
    return registry.find(sources, path)[1] or sources.overview


def _drawn(sources: Sources, worker: Worker, path: str, parameters: Parameters) -> Drawn:
    """The live parts of a page. Raises NotFound if it has none."""
    found = answers.live(_content(sources, worker, path, "", parameters))
    if found.version is None:
        raise NotFound("This page does not change by itself.")
    return found.version, found.parts


def _content(sources: Sources, worker: Worker, path: str, ending: str, parameters: Parameters) -> answers.Packed:
    """The content of a page. Pages of a study are cached for all browsers until the study changes."""
    work, study = registry.find(sources, path)
    ask = asked.Ask(sources=sources, parameters=parameters, study=study, path=path, worker=worker)
    if study is None:
        if work is studies.view and ending:
            sources.read()  # a program would not ask again later
        version = sources.overview.look() if work is studies.view else 0
        return answers.packed(*answers.written(replace(work(ask), version=version), ending, parameters, path))
    prepare = partial(_prepare, sources, worker, study.address)
    if not ending and not study.is_prepared(prepare, partial(prepare, _other_objectives(study))):
        return answers.packed(*answers.written(reading.view(ask), ending, parameters, path))
    return _kept(work, ask, study, ending)


def _kept(work: registry.Page, ask: asked.Ask, study: StudyCache, ending: str) -> answers.Packed:
    settled = True

    def made() -> answers.Packed:
        nonlocal settled
        version = study.version  # if the study grows meanwhile, the page gets an event and asks again
        view = replace(work(ask), version=version)
        settled = view.is_settled
        return answers.packed(*answers.written(view, ending, ask.parameters, ask.path))

    key = (ask.path, ask.parameters.key, ending)
    content = study.remember(key, made)
    if not settled:
        study.forget(key)
    return content


async def static(request: Request) -> Response:
    """A static file of the dashboard, or the script of Plotly's Python package, by its name."""
    found = files().get(request.path_params["name"])
    if found is None:
        return PlainTextResponse("There is no such file.", 404)
    headers = {"cache-control": "no-cache"}
    return FileResponse(found, headers=headers, media_type=KINDS[found.suffix])
