"""Which names may stand where: for suggestions in error messages."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel

from sim.config.run import RunConfig


def names_at(path: list[str], values: Any) -> list[str]:
    """Field names of the section at `path`, choosing among alternatives by the `type` that the file gives."""
    models: list[type[BaseModel]] = [RunConfig]
    here: Any = values
    for part in path:
        models = [inner for model in models if part in model.model_fields for inner in _sections(model, part)]
        here = here.get(part) if isinstance(here, dict) else None
        wanted = here.get("type") if isinstance(here, dict) else None
        chosen = [model for model in models if wanted in _types(model)]
        models = chosen or models
    return list(dict.fromkeys(name for model in models for name in model.model_fields))


def paths_to(name: str) -> dict[str, bool]:
    """Where a field of this name may stand -> whether it is a section; refused fields and lists are left out."""
    found: dict[str, bool] = {}
    todo: list[tuple[str, type[BaseModel]]] = [("", RunConfig)]
    while todo:
        at, model = todo.pop()
        for field, about in model.model_fields.items():
            inner = _sections(model, field) if get_origin(about.annotation) is not list else []
            if field == name and (about.annotation is not Any or about.default is not None):
                found[f"{at}{field}"] = bool(inner)
            todo += [(f"{at}{field}.", each) for each in inner]
    return found


def _sections(model: type[BaseModel], name: str) -> list[type[BaseModel]]:
    """Section classes that a field may hold."""
    found: list[type[BaseModel]] = []
    todo: list[Any] = [model.model_fields[name].annotation]
    while todo:
        each = todo.pop()
        if isinstance(each, type) and issubclass(each, BaseModel):
            found.append(each)
        todo += get_args(each)
    return found


def _types(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("type")
    return get_args(field.annotation) if field else ()
