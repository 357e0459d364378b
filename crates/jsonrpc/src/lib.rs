//! JSON-RPC as bytes: calls, batches, replies and the envelope scanner
