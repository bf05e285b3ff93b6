"""What an assembled kernel takes of a device, read from the binary: no tool of the CUDA toolkit is needed.

A cubin is a little-endian 64-bit ELF file. Its section `.nv.info` holds records of an attribute each: a byte that says how long the record
is, a byte that names the attribute, and two bytes that hold a value or the length of the payload that follows. Registers and stack are
payloads of a symbol's number and a value, one for each function."""

import struct

_SIZED = 4  # the record's form with a payload; the others are the four bytes alone
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F


class ResourcesUnknown(RuntimeError):
    """The binary does not say what it takes: not the candidate's fault."""


def read_resources(cubin):
    """{registers (a thread), stack_bytes (local memory of a thread: spills and local arrays)}, of several functions the most of each.
    Raises ResourcesUnknown for anything that is no such binary."""
    try:
        found = {}
        for attribute, value in _values(cubin):
            found[attribute] = max(value, found.get(attribute, 0))
        return {"registers": found[_REGISTERS], "stack_bytes": found.get(_FRAME_SIZE, 0)}
    except (struct.error, ValueError, KeyError, IndexError) as error:
        raise ResourcesUnknown(f"registers and spills cannot be read from the binary: {type(error).__name__}: {error}") from error


def _values(cubin):
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no little-endian 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", cubin, table + i * size) for i in range(count)]
    for name, _, _, _, at, length in sections:
        start = sections[names][4] + name
        if cubin[start : cubin.index(b"\0", start)] != b".nv.info":
            continue
        end = at + length
        while at < end:
            form, attribute, value = struct.unpack_from("<BBH", cubin, at)
            at += 4
            if form != _SIZED:
                continue
            if attribute in (_FRAME_SIZE, _REGISTERS):
                yield attribute, struct.unpack_from("<II", cubin, at)[1]
            at += value
