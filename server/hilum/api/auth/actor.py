"""The actor of a request.

`guard` stores it once the request is admitted; routes and pages read it here.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from hilum.domain import Actor, Channel

ANONYMOUS = "anonymous"
_API_PREFIXES = ("/api/", "/dicom-web/")


def set_actor(request: Request, name: str) -> None:
    """Note the name under which a request was admitted."""
    request.state.actor = Actor(
        name, _channel(request), request.client.host if request.client else ""
    )


def actor_of(request: Request) -> Actor:
    """Return the actor of an admitted request; anonymous where no name was needed."""
    if not hasattr(request.state, "actor"):
        set_actor(request, ANONYMOUS)
    actor: Actor = request.state.actor
    return actor


def _channel(request: Request) -> Channel:
    return Channel.REST if request.url.path.startswith(_API_PREFIXES) else Channel.PAGE


ActorHere = Annotated[Actor, Depends(actor_of)]
