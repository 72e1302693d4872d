"""Arithmetic over symbols, as the architecture files write it. Nothing but numbers, names and a few functions."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"ceil": math.ceil, "floor": math.floor, "max": max, "min": min}


class FormulaError(ValueError):
    """A formula does not parse, or names a symbol that is not there."""


def evaluate(formula: str | int | float | bool, symbols: Mapping[str, Any]) -> Any:
    """Value of a formula; numbers stand for themselves.

    Raises:
        FormulaError: with the formula and the symbol or the construct at fault.
    """
    if not isinstance(formula, str):
        return formula
    try:
        tree = ast.parse(formula, mode="eval")
    except SyntaxError as error:
        raise FormulaError(f"formula {formula!r}: {error.msg}") from error
    return _value(tree.body, symbols, formula)


def _value(node: ast.expr, symbols: Mapping[str, Any], formula: str) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            if name not in symbols:
                raise FormulaError(f"formula {formula!r}: no symbol {name!r}; there are {', '.join(sorted(symbols))}")
            return symbols[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, symbols, formula), _value(right, symbols, formula))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, symbols, formula)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, symbols, formula)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, symbols, formula) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_value(value, symbols, formula) for value in values)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](_value(left, symbols, formula), _value(right, symbols, formula))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, symbols, formula) else orelse, symbols, formula)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(arg, symbols, formula) for arg in args))
    raise FormulaError(f"formula {formula!r}: {ast.unparse(node)!r} is not allowed")
