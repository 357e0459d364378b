//! Control loops: follow heads, verify identity, probe health
