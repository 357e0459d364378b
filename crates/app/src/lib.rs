//! Config, assembly, subcommands
