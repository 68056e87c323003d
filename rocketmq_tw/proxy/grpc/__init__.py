"""gRPC over HTTP/2, and the services that every gRPC server has: health and reflection."""
