"""Ask for memory before it is needed: numba has no word for it, the machine has."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_BYTE, _NUMBER = ir.IntType(8).as_pointer(), ir.IntType(32)
_KIND = ir.FunctionType(ir.VoidType(), [_BYTE, _NUMBER, _NUMBER, _NUMBER])


@intrinsic
def prefetch(typing: Any, array: Any, place: Any) -> Any:
    """Ask for the line of memory around a place of a flat array; nothing is read or changed."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        held = context.make_array(signature.args[0])(context, builder, values[0])
        address = builder.bitcast(builder.gep(held.data, [values[1]]), _BYTE)
        function = cgutils.get_or_insert_function(builder.module, _KIND, "llvm.prefetch.p0i8")
        read, stay, data = _NUMBER(0), _NUMBER(3), _NUMBER(1)
        builder.call(function, [address, read, stay, data])
        return context.get_dummy_value()

    return types.void(array, place), generate
