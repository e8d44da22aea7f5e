"""The service: models over HTTP and WebSocket, with batching across requests. `halp serve` starts it."""
