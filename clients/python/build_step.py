"""Makes what is generated of the package `berth_client`: stubs, methods and the synchronous half.

    proto/berth/**.proto  ->  berth_client/proto/**_pb2{,_grpc}.py{,i}   by protoc
                          ->  berth_client/methods.py                    every public method, typed
    _async/*.py           ->  berth_client/_sync/*.py                    without `async` and `await`

It reads no network: `grpcio-tools` has the compiler, `mypy-protobuf` the types of its output.

The stubs are below `berth_client`, as the name `berth` is another project's. The names of their
files in protobuf's pool stay as they are, so that a program may have stubs of its own beside them.
"""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent

# Packages between schedulers, or of what is stored: no client has a use for them.
INTERNAL = ("raft", "state")
# Services that clients do not call.
NOT_PUBLIC = ("berth.agent.",)
# Methods without a request id that change nothing; `is_read` of berth_client/_method.py.
READS = (
    "Backup", "Check", "Compare", "Expect", "Find", "Fit", "Get", "List", "Plan", "Read", "Verify",
    "Wait", "Watch",
)
# What is written by hand in both halves.
BY_HAND = ("transport.py",)


def protos() -> Path:
    """Returns the folder of the protos: of a source distribution, or of the repository."""
    for folder in (HERE / "proto", HERE.parent.parent / "proto"):
        if (folder / "berth").is_dir():
            return folder
    raise SystemExit(f"no protos beside {HERE}: build it in Berth's repository")


def sources(folder: Path) -> list[str]:
    """Returns the names of the protos that clients need, relative to their folder."""
    files = (file.relative_to(folder) for file in (folder / "berth").rglob("*.proto"))
    return sorted(str(file) for file in files if file.parts[1] not in INTERNAL)


def copy_protos(target: Path) -> None:
    """Copies the protos into a source distribution."""
    for name in sources(protos()):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(protos() / name, target / name)


def requirements() -> list[str]:
    """Returns what the package needs: code of a compiler runs with its runtime or a newer one."""
    tools = metadata.version("grpcio-tools")
    protobuf = _runtime()
    grpcio = ".".join(tools.split(".")[:2])
    return [
        f"grpcio>={grpcio}",
        f"protobuf>={protobuf},<{int(protobuf.split('.')[0]) + 2}",
        "googleapis-common-protos>=1.63",
    ]


def generate(package: Path) -> None:
    """Adds everything that is generated to a package of copied sources."""
    services = _compile(package / "proto")
    (package / "methods.py").write_text("\n".join(_methods(services)), encoding="utf-8")
    for source in sorted((package / "_async").glob("*.py")):
        if source.name not in BY_HAND:
            target = package / "_sync" / source.name
            target.write_text(without_async(source.read_text(encoding="utf-8")), encoding="utf-8")


def without_async(text: str) -> str:
    """Returns the synchronous form of an asynchronous module."""
    text = re.sub(r"(?ms)^ *# async only: begin\n.*?^ *# async only: end\n", "", text)
    text = re.sub(r"\basync (def|for|with)\b", r"\1", text)
    text = re.sub(r"\bawait ", "", text)
    text = re.sub(r"\bAsync([A-Z])", r"\1", text)
    text = re.sub(r"\b_async\b", "_sync", text)
    text = re.sub(r"__a(enter|exit|iter|next)__", r"__\1__", text)
    return text.replace("(asynchronous)", "(synchronous)")


def _run_compiler(*arguments: str) -> None:
    from grpc_tools import protoc

    # The plug-ins are beside the Python that builds, which need not be on the search path.
    own = [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
    os.environ["PATH"] = os.pathsep.join(own)
    common = Path(protoc.__file__).parent / "_proto"
    code = protoc.main(["protoc", f"-I{protos()}", f"-I{common}", *arguments])
    if code != 0:
        raise SystemExit(f"protoc failed with status {code}")


def _runtime() -> str:
    """Returns the version of the runtime that the compiler's output requires."""
    with tempfile.TemporaryDirectory() as folder:
        _run_compiler(f"--python_out={folder}", "berth/type/v1/read_consistency.proto")
        text = next(Path(folder).rglob("*_pb2.py")).read_text(encoding="utf-8")
    found = re.search(r"Protobuf Python Version: ([0-9.]+)", text)
    if found is None:
        raise SystemExit("the compiler does not state the version of its runtime")
    return found.group(1)


def _compile(target: Path) -> "list[Service]":
    """Compiles the protos into a package, and returns the public services."""
    from google.protobuf import descriptor_pb2

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        outputs = ("python", "grpc_python", "mypy", "mypy_grpc")
        _run_compiler(
            *(f"--{kind}_out={'quiet:' if 'mypy' in kind else ''}{folder}" for kind in outputs),
            f"--descriptor_set_out={folder / 'all'}", "--include_source_info",
            *sources(protos()),
        )
        described = descriptor_pb2.FileDescriptorSet.FromString((folder / "all").read_bytes())
        with_services = {
            file.name.removesuffix(".proto") for file in described.file if file.service
        }
        if target.exists():
            shutil.rmtree(target)
        for file in sorted(folder.rglob("*_pb2*")):
            inside = file.relative_to(folder)
            stem = str(inside).split("_pb2")[0]
            if "_pb2_grpc" in file.name and stem not in with_services:
                continue
            text = file.read_text(encoding="utf-8")
            text = re.sub(r"(?m)^from berth\.", "from berth_client.proto.", text)
            _write(target / inside.relative_to("berth"), text)
    for folder in [target, *(path for path in target.rglob("*") if path.is_dir())]:
        _write(folder / "__init__.py", '"""Stubs that are generated from Berth\'s protos."""\n')
    return list(_services(described))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


# A service: its full name, the module of its file, its comment, and its methods.
Service = tuple[str, str, str, list[tuple[str, str, str, bool, str]]]


def _services(described) -> Iterator[Service]:  # type: ignore[no-untyped-def]
    for file in described.file:
        comments = {tuple(at.path): at.leading_comments for at in file.source_code_info.location}
        for index, service in enumerate(file.service):
            name = f"{file.package}.{service.name}"
            if name.startswith(NOT_PUBLIC):
                continue
            methods = [
                (
                    method.name, method.input_type, method.output_type, method.server_streaming,
                    comments.get((6, index, 2, at), ""),
                )
                for at, method in enumerate(service.method)
                # What sends a stream is a session of a person: `berth vm console`.
                if not method.client_streaming
            ]
            module = file.name.removesuffix(".proto").removeprefix("berth/").replace("/", ".")
            yield name, f"berth_client.proto.{module}_pb2", comments.get((6, index), ""), methods


def _methods(services: "list[Service]") -> Iterator[str]:
    yield '"""Every public method of Berth\'s services, for `call` and `stream` of a client.\n'
    yield "Generated from the protos. Messages are in `berth_client.proto`."
    yield '"""\n'
    yield "from berth_client._method import AnyMethod, Method, StreamMethod, Target"
    for _, module, _, _ in services:
        package, _, name = module.rpartition(".")
        yield f"from {package} import {name} as _{name}"
    for full, module, comment, methods in services:
        short = full.rpartition(".")[2]
        yield f"\n\nclass {short}:"
        yield _docstring(comment, "    ")
        for name, request, response, is_stream, about in methods:
            kind = "StreamMethod" if is_stream else "Method"
            own = f"_{module.rpartition('.')[2]}"
            types = [f"{own}.{full_type.rpartition('.')[2]}" for full_type in (request, response)]
            target = "CONDUCTOR" if short == "ConductorService" else "SCHEDULER"
            is_read = name.startswith(READS)
            yield f"    {name} = {kind}("
            yield f'        "/{full}/{name}", {types[0]}, {types[1]}, Target.{target}, {is_read}'
            yield "    )"
            yield _docstring(about, "    ")
    yield "\n\nALL: tuple[AnyMethod, ...] = ("
    for full, _, _, methods in services:
        for name, *_ in methods:
            yield f"    {full.rpartition('.')[2]}.{name},"
    yield ")"
    yield '"""All of them."""\n'


def _docstring(comment: str, indent: str) -> str:
    lines = [line.strip() for line in comment.strip().splitlines()]
    return indent + '"""' + f"\n{indent}".join(lines).replace('"""', "'''") + '"""'
