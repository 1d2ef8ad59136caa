"""Our mutator: damages bytes anywhere, and JSON in its structure."""

import json
import random

ODD_VALUES = (
    "null", "true", "false", "0", "-1", "1", "2", "0.5", "-0.0", "1e300", "1e308", "1e400", "NaN",
    "-Infinity",
    str(2**31), str(2**53), str(2**63), str(2**64), "9" * 400, '""', '"x"', '"../../x"', '"a/b"',
    '"."', '".."',
    '"' + "n" * 300 + '"', '"' + "n" * 5000 + '"', '"\\u0000"', '"\\ud800"', '"ENDSENT"',
    '"gaussian"', '"NCHW"',
    "[]", "{}", "[[]]", "[1]", '["x"]', '{"x": 1}', "[" * 50 + "]" * 50, "[" * 2000 + "]" * 2000,
    '{"name": "student-t", "parameters": {"df": 0}}', '{"name": "student-t", "parameters": {"df": "x"}}',
)  # fmt: skip
ODD_BYTES = (b"\x00", b"\xff", b"\x7f", b"\x80", b"\x01", b"\n", b'"', b"{", b"[")


def mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    """One to four changes: flipped bits, odd bytes and integers, spans that are cut, doubled or moved."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = (
            rng.randrange(len(changed) + 1)
            if rng.random() < 0.7
            else rng.randrange(min(len(changed), 128) + 1)
        )
        width = rng.choice((1, 1, 2, 4, 8, 32))
        kind = rng.randrange(7)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at : at + 1] = rng.choice(ODD_BYTES)
        elif kind == 2:
            size = rng.choice((1, 2, 4, 8))
            number = rng.choice((0, 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 1), 2 ** (8 * size - 1) - 1))
            changed[at : at + size] = number.to_bytes(size, rng.choice(("little", "big")))
        elif kind == 3:
            del changed[at : at + width]
        elif kind == 4:
            changed[at:at] = changed[at : at + width] * rng.choice((1, 2, 50))
        elif kind == 5:
            del changed[at:]
        else:
            source = rng.randrange(len(changed) + 1)
            changed[at : at + width] = changed[source : source + width]
    return bytes(changed)


def mutate_json(data: bytes, rng: random.Random) -> bytes:
    """A value replaced, removed, added, doubled or swapped; sometimes the bytes themselves are damaged."""
    if rng.random() < 0.25:
        return mutate_bytes(data, rng)
    document = json.loads(data)
    replaced = {}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = _list_places(document)
        if not places:
            break
        box, key = rng.choice(places)
        kind = rng.randrange(6)
        if kind <= 2:
            mark = f"@{rng.getrandbits(64):x}@"
            replaced[f'"{mark}"'] = rng.choice(ODD_VALUES)
            box[key] = mark
        elif kind == 3:
            del box[key]
        elif kind == 4:
            other_box, other_key = rng.choice(places)
            box[key] = json.loads(json.dumps(other_box[other_key]))
        elif isinstance(box, list):
            box[key:key] = box[key : key + 1] * rng.choice((1, 2, 100))
        else:
            box[rng.choice(("x", "", "n" * 500, "class", "parameters", "__metadata__"))] = box[key]
    text = json.dumps(document)
    for mark, value in replaced.items():
        text = text.replace(mark, value)
    return text.encode()


def _list_places(value):
    """(box, key) of every value inside a document; of a long list, the first and the last few."""
    places = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
        keys = keys if len(keys) <= 8 else keys[:4] + keys[-4:]
    else:
        return places
    for key in keys:
        places.append((value, key))
        places += _list_places(value[key])
    return places
