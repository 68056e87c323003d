"""gRPC's reflection service: tells tools such as grpcurl which services and messages there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from google.protobuf.descriptor import FileDescriptor

from rocketmq_tw.proxy.grpc.interfaces import SMALL_REQUEST, BothStreams, GrpcStatus, ICall, Methods
from rocketmq_tw.proxy.proto import health_pb2, reflection_pb2, reflection_v1alpha_pb2


class ReflectionService:
    """Tells what `files` declare, and what they are made of; health and reflection as well."""

    def __init__(self, files: Sequence[FileDescriptor]) -> None:
        own = (health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR, reflection_v1alpha_pb2.DESCRIPTOR)
        #: All files by name, and the file of each symbol; those that a file needs stand before it.
        self._files: dict[str, FileDescriptor] = {}
        self._symbols: dict[str, FileDescriptor] = {}
        self._services: list[str] = []
        for file in (*files, *own):
            self._add(file)
            self._services += [each.full_name for each in file.services_by_name.values()]

    def methods(self) -> Methods:
        """Returns the methods of the service in both of its versions."""
        result: dict[str, BothStreams] = {}
        versions: list[ModuleType] = [reflection_pb2, reflection_v1alpha_pb2]
        for module in versions:
            service = module.DESCRIPTOR.services_by_name["ServerReflection"].full_name
            result[f"/{service}/ServerReflectionInfo"] = BothStreams(
                module.ServerReflectionRequest, partial(self._open, module), SMALL_REQUEST
            )
        return result

    def _add(self, file: FileDescriptor) -> None:
        if file.name in self._files:
            return
        for needed in file.dependencies:
            self._add(needed)
        self._files[file.name] = file
        for message in file.message_types_by_name.values():
            self._add_message(message, file)
        for enum in file.enum_types_by_name.values():
            self._symbols[enum.full_name] = file
        for service in file.services_by_name.values():
            self._symbols[service.full_name] = file
            for method in service.methods:
                self._symbols[method.full_name] = file

    def _add_message(self, message: Any, file: FileDescriptor) -> None:
        self._symbols[message.full_name] = file
        for inner in message.nested_types:
            self._add_message(inner, file)
        for enum in message.enum_types:
            self._symbols[enum.full_name] = file

    def _open(self, module: Any, call: ICall) -> Callable[[Any], None]:
        return lambda request: call.send(self._answer(module, request))

    def _answer(self, module: Any, request: Any) -> Any:
        answer = module.ServerReflectionResponse(valid_host=request.host, original_request=request)
        kind = request.WhichOneof("message_request")
        if kind == "list_services":
            for name in sorted(self._services):
                answer.list_services_response.service.add(name=name)
            return answer
        asked = request.all_extension_numbers_of_type
        if kind == "all_extension_numbers_of_type" and asked in self._symbols:
            answer.all_extension_numbers_response.base_type_name = asked
            return answer
        file = None
        if kind == "file_by_filename":
            file = self._files.get(request.file_by_filename)
        elif kind == "file_containing_symbol":
            file = self._symbols.get(request.file_containing_symbol)
        if file is None:
            # There are no extensions, which are a thing of proto2.
            answer.error_response.error_code = GrpcStatus.NOT_FOUND
            answer.error_response.error_message = "the server has nothing of that name"
            return answer
        answer.file_descriptor_response.file_descriptor_proto.extend(
            each.serialized_pb for each in _with_needed(file)
        )
        return answer


def _with_needed(file: FileDescriptor) -> list[FileDescriptor]:
    """Returns a file behind all that it needs."""
    result: list[FileDescriptor] = []
    for needed in file.dependencies:
        result += [each for each in _with_needed(needed) if each not in result]
    return [*result, file]
