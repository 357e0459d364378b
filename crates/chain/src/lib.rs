//! Heads, lag and the agreed view of one chain
