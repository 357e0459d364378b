//! HTTP listeners: framing, limits, compression, drain, and the admin listener
