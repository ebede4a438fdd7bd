"""CUDA C++ as text: its kernels, and the same text for a C++ compiler of a CPU.

What the two languages have in common stays as it is, line by line. Headers of CUDA's go, for
`cuda_runtime/names.h` has the names; PTX in `asm` becomes C++, instruction by instruction; shared
memory of each kernel becomes a section of the object file, so that its size is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.core.errors import ModelError


@dataclass(frozen=True, slots=True)
class CudaParameter:
    """A parameter of a kernel: its C type without `const` and `__restrict__`, and its name."""

    type: str
    name: str

    @property
    def is_array(self) -> bool:
        """Whether it is a pointer to memory of the GPU."""
        return self.type.endswith("*")


@dataclass(frozen=True, slots=True)
class CudaFunction:
    """A `__global__` function of a text: the threads of a block that its launch bounds allow, None
    where it has none, and where its body lies in the text."""

    name: str
    parameters: tuple[CudaParameter, ...]
    most_threads: int | None
    body: tuple[int, int]


_NOT_CODE = r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|//[^\n]*|/\*.*?\*/'
_BRACKETS = re.compile(_NOT_CODE + r"|[()\[\]{}]", re.DOTALL)
_KERNEL = re.compile(
    r"__global__\s+void\s+(?:__launch_bounds__\((?P<bounds>[^)]*)\)\s*)?(?P<name>\w+)\s*"
    r"\((?P<parameters>[^)]*)\)\s*\{"
)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*", re.MULTILINE)
_USING = re.compile(r"^[ \t]*using cuda::std::[^\n]*", re.MULTILINE)
_ASM = re.compile(r"\b(?:asm|__asm__)\s*(?:volatile|__volatile__)?\s*\(")
_DYNAMIC = re.compile(
    r"extern\s+__shared__\s+(?:(?:__align__|alignas)\(\d+\)\s+)?(?P<type>[\w ]+?)\s+"
    r"(?P<name>\w+)\s*\[\s*\]\s*;"
)
_SECTION = "cuda_shared_"


def cuda_functions(text: str) -> dict[str, CudaFunction]:
    """The kernels that a text defines, by name."""
    found: dict[str, CudaFunction] = {}
    for match in _KERNEL.finditer(text):
        bounds = (match["bounds"] or "").split(",")[0].strip()
        found[match["name"]] = CudaFunction(
            name=match["name"],
            parameters=tuple(_parameter(it) for it in _split(match["parameters"], ",") if it),
            most_threads=int(bounds) if bounds.isdigit() else None,
            body=(match.end(), closing(text, match.end() - 1)),
        )
    return found


def _parameter(text: str) -> CudaParameter:
    words = re.sub(r"\b(?:const|__restrict__|__grid_constant__)\b", " ", text).strip()
    kind, name = re.fullmatch(r"(.*?)(\w+)", words, re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
    return CudaParameter(" ".join(kind.split()).replace(" *", "*"), name)


def closing(text: str, opening: int) -> int:
    """Behind the bracket that closes the one at `opening`; brackets in strings and comments do not
    count. Raises ModelError where there is none."""
    depth = 0
    for match in _BRACKETS.finditer(text, opening):
        if len(match[0]) == 1:
            depth += 1 if match[0] in "([{" else -1
            if depth == 0:
                return match.end()
    line = text.count("\n", 0, opening) + 1
    raise ModelError(f"the bracket of line {line} of the CUDA text is never closed")


def _split(text: str, at: str) -> list[str]:
    """The parts between characters that lie in no bracket and no string."""
    parts, depth, begin = list[str](), 0, 0
    for match in re.finditer(_NOT_CODE + rf"|[()\[\]{{}}]|{at}", text, re.DOTALL):
        if match[0] == at and depth == 0:
            parts.append(text[begin : match.start()])
            begin = match.end()
        elif match[0] in "([{":
            depth += 1
        elif match[0] in ")]}":
            depth -= 1
    return [part.strip() for part in [*parts, text[begin:]]]


def executable_text(text: str) -> str:
    """C++ that does what the CUDA text does, with the same lines, and behind them what calls each
    kernel: `cuda_call_NAME(void** arguments)` and the bytes of its static shared memory.

    Raises ModelError for PTX that is not executed here.
    """
    text = _USING.sub("", _INCLUDE.sub("", text))
    text = _DYNAMIC.sub(r"\g<type>* \g<name> = (\g<type>*)cuda_dynamic_shared();", text)
    text = _with_asm_as_code(text)
    parts, done = list[str](), 0
    functions = cuda_functions(text)
    for function in functions.values():
        begin, end = function.body
        parts += [text[done:begin], _with_sections(text[begin:end], function.name)]
        done = end
    calls = "\n".join(_call(function) for function in functions.values())
    return f'#line 1 "kernel.cu"\n{"".join(parts)}{text[done:]}\n{calls}\n'


def _with_sections(body: str, name: str) -> str:
    attributes = f'__attribute__((section("{_SECTION}{name}"), used))'
    return re.sub(r"\b__shared__\b", f"static {attributes}", body)


def _call(function: CudaFunction) -> str:
    given = ", ".join(
        f"({it.type})a[{place}]" if it.is_array else f"*({it.type}*)&a[{place}]"
        for place, it in enumerate(function.parameters)
    )
    name, hidden = function.name, '__attribute__((weak, visibility("hidden")))'
    edges = ", ".join(f"__{edge}_{_SECTION}{name}[]" for edge in ("start", "stop"))
    shown = 'extern "C" __attribute__((visibility("default")))'
    return (
        f'extern "C" {hidden} char {edges};\n'
        f"{shown} void cuda_call_{name}(void** a) {{ {name}({given}); }}\n"
        f"{shown} NOT_SEEN char* cuda_static_{name}(size_t* bytes) {{\n"
        f"  *bytes = __stop_{_SECTION}{name} - __start_{_SECTION}{name};\n"
        f"  return __start_{_SECTION}{name};\n}}\n"
    )


def _with_asm_as_code(text: str) -> str:
    """The text with its PTX as C++, each statement in the line where it began."""
    parts, done = list[str](), 0
    for match in _ASM.finditer(text):
        if match.start() < done:
            continue
        end = closing(text, match.end() - 1)
        inside = text[match.end() : end - 1]
        line = text.count("\n", 0, match.start()) + 1
        parts += [text[done : match.start()], asm_as_code(inside, line), "\n" * inside.count("\n")]
        done = end
    return "".join(parts) + text[done:]


def asm_as_code(inside: str, line: int) -> str:
    """A block of C++ for what stands in the brackets of an `asm` statement in a line of the text.

    Raises ModelError for an instruction that is not executed here.
    """
    template, *operands = _split(inside, ":")
    strings = re.findall(r'"((?:\\.|[^"\\])*)"', template)
    ptx = "".join(strings).replace("\\n", "\n").replace("\\t", " ").replace("%%", "%")
    code, place = list[str](), 0
    for written, group in zip((True, False), operands[:2], strict=False):
        for operand in filter(None, _split(group, ",")):
            value = operand[operand.index("(") :]
            code.append(f"auto{'&&' if written else ''} _{place} = {value};")
            place += 1
    for statement in re.sub(r"//[^\n]*", "", ptx).split(";"):
        bare = " ".join(statement.split()).removeprefix("{").strip()
        if bare and bare != "}":
            code.append(_instruction(bare, line))
    return "{ " + " ".join(code) + " }"


def _instruction(text: str, line: int) -> str:
    declared = re.fullmatch(r"\.reg \.(\w+) (.*)", text)
    if declared:
        return f"{_TYPES.get(declared[1], 'uint32_t')} {declared[2].replace('%', '')};"
    guard, opcode, rest = re.fullmatch(r"(?:@(!?%?\w+) )?([\w.:]+) ?(.*)", text).groups()  # pyright: ignore[reportOptionalMemberAccess]
    operands = [_operands(it) for it in filter(None, _split(rest, ","))]
    for _, pattern, made in _INSTRUCTIONS:
        match = re.fullmatch(pattern, opcode)
        if match:
            code = made(match, operands, line)
            return f"if ({guard.replace('%', '')}) {{ {code} }}" if guard else code
    known = ", ".join(name for name, _, _ in _INSTRUCTIONS)
    raise ModelError(
        f"the PTX instruction {opcode} in line {line} of the CUDA text is not executed here",
        hint=f"Known: {known}.",
    )


def _operands(text: str) -> list[str]:
    """The values of an operand: one, or those in braces."""
    inner = text.strip("{}[] ")
    return [re.sub(r"%(\d+)", r"_\1", it.strip("[] ")).replace("%", "") for it in inner.split(",")]


_TYPES = {"pred": "bool", "u64": "uint64_t", "b64": "uint64_t", "s32": "int32_t", "f32": "float"}
_WHOLE = {"u64": "uint64_t", "b64": "uint64_t", "s32": "int32_t", "s64": "int64_t"}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

Operands = Sequence[Sequence[str]]
_Made = Callable[["re.Match[str]", Operands, int], str]


def _set_predicate(match: re.Match[str], of: Operands, _line: int) -> str:
    kind = _WHOLE.get(match[2], "uint32_t")
    return f"{of[0][0]} = ({kind})({of[1][0]}) {_COMPARED[match[1]]} ({kind})({of[2][0]});"


def _move(match: re.Match[str], of: Operands, _line: int) -> str:
    if match[0].startswith("cvta"):
        return f"{of[0][0]} = cuda_shared_address((const void*)({of[1][0]}));"
    return f"{of[0][0]} = {of[1][0]};"


def _round(_match: re.Match[str], of: Operands, _line: int) -> str:
    return f"{of[0][0]} = cuda_tf32({of[1][0]});"


def _copy(_match: re.Match[str], of: Operands, _line: int) -> str:
    to, source, size = (it[0] for it in of[:3])
    return f"cuda_copy_async({to}, (const void*)({source}), {size}, {(of[3:] or [of[2]])[0][0]});"


def _commit(_match: re.Match[str], _of: Operands, _line: int) -> str:
    return "cuda_copy_commit();"


def _wait(_match: re.Match[str], of: Operands, _line: int) -> str:
    return f"cuda_copy_wait({of[0][0]});" if of else "cuda_copy_commit(); cuda_copy_wait(0);"


def _store(match: re.Match[str], of: Operands, _line: int) -> str:
    kind = "float" if match[2] == "f32" else "uint32_t"
    at = f"(({kind}*)cuda_generic_address({of[0][0]}))"
    return " ".join(f"{at}[{i}] = {value};" for i, value in enumerate(of[1]))


def _load_matrix(match: re.Match[str], of: Operands, line: int) -> str:
    count, into = int(match[1]), of[0]
    taken = " ".join(f"{name} = m_[{i}];" for i, name in enumerate(into))
    turned = "true" if match[2] else "false"
    load = f"cuda_load_matrix({of[1][0]}, {count}, {turned}, m_, {line});"
    return f"{{ uint32_t m_[4]; {load} {taken} }}"


def _multiply(match: re.Match[str], of: Operands, line: int) -> str:
    kind, sums = match["a"], match["sums"]
    d, a, b, c = of
    fill = [
        f"p_.{side}[{i}] = cuda_bits<uint32_t>({name});"
        for side, names in (("a", a), ("b", b), ("c", c))
        for i, name in enumerate(names)
    ]
    taken = [
        f"{name} = cuda_bits<typename std::decay<decltype({name})>::type>(p_.d[{i}]);"
        for i, name in enumerate(d)
    ]
    begin = f'cuda_product p_ = {{"{kind}", {len(a)}, {len(b)}, {str(sums == "f16").lower()}}};'
    return " ".join(["{", begin, *fill, f"cuda_multiply(&p_, {line});", *taken, "}"])


def _dot(match: re.Match[str], of: Operands, _line: int) -> str:
    kinds = ", ".join({"u32": "uint8_t", "s32": "int8_t"}[kind] for kind in match.groups())
    d, a, b, c = (it[0] for it in of)
    return f"{d} = cuda_dot4<{kinds}>({a}, {b}, {c});"


_INSTRUCTIONS: tuple[tuple[str, str, _Made], ...] = (
    ("cvt.rna.tf32.f32", r"cvt\.rna\.tf32\.f32", _round),
    ("setp", r"setp\.(eq|ne|lt|le|gt|ge)\.(\w+)", _set_predicate),
    ("mov", r"mov\.\w+|cvt\.u32\.u64", _move),
    ("cvta.to.shared", r"cvta\.to\.shared\.u64", _move),
    ("cp.async", r"cp\.async\.c[ag]\.shared(?:::cta)?\.global(?:\.L2::\w+)?", _copy),
    ("cp.async.commit_group", r"cp\.async\.commit_group", _commit),
    ("cp.async.wait_group", r"cp\.async\.wait_(?:group|all)", _wait),
    ("st.shared", r"st\.shared(?:::cta)?(?:\.v([24]))?\.([bu]32|f32)", _store),
    (
        "ldmatrix",
        r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared(?:::cta)?\.b16",
        _load_matrix,
    ),
    (
        "mma.sync.m16n8",
        r"mma\.sync\.aligned\.m16n8k\d+\.row\.col\.(?P<sums>f32|f16|s32)"
        r"\.(?P<a>f16|bf16|tf32|s8|u8)\.(?P=a)\.(?P=sums)",
        _multiply,
    ),
    ("dp4a", r"dp4a\.([us]32)\.([us]32)", _dot),
)
