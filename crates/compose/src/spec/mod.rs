//! The Compose specification: the table of all keys, and the checks, defaults and canonical form that follow from it.
//! Works on YAML trees; reads no files and knows no variables.

pub(crate) mod canonical;
pub(crate) mod cast;
pub(crate) mod command_line;
pub(crate) mod consistency;
pub(crate) mod env_format;
pub(crate) mod keys;
pub(crate) mod masked;
pub(crate) mod normalise;
pub(crate) mod page;
pub(crate) mod path;
pub(crate) mod paths;
pub(crate) mod print;
pub(crate) mod scalar;
pub(crate) mod shape;
pub(crate) mod short;
pub(crate) mod strict;
pub(crate) mod tree;
pub(crate) mod value;
