//! HTTP/1.1, HTTP/2 and WebSocket clients and their pools: the only outgoing sockets
