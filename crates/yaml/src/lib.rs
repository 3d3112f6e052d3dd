//! A YAML tree in which every value knows its file, line and column, and a typed reader over it.
//!
//! [`parse()`] turns the bytes of a file into one [`Node`] per document. Anchors are expanded and merge keys (`<<`)
//! applied, so the tree has only maps, lists and scalars. A value that came through an alias keeps the place where it
//! was written. The size of the file, its values, their depth and the copies that aliases make are all bounded
//! ([`Limits`]): files may come from strangers.
//!
//! [`Value`] reads typed values out of the tree and reports each mistake as a
//! [`Finding`](driftless_model::Finding) with file, line, column, path and help. A scalar stays text until it is read,
//! because the formats disagree on what it means; a [`Dialect`] holds the rules of one format.
//!
//! ```
//! use driftless_yaml::{Dialect, Limits, Node, Report, Value, parse};
//!
//! /// Scalars by YAML 1.2.
//! #[derive(Clone, Debug)]
//! struct Plain;
//!
//! impl Dialect for Plain {
//!     type Text<'n> = &'n str;
//!
//!     fn text(node: &Node) -> Option<&str> {
//!         node.as_scalar().filter(|_| node.kind_name() == "string")
//!     }
//!
//!     fn boolean(node: &Node) -> Option<bool> {
//!         node.as_bool()
//!     }
//!
//!     fn integer(node: &Node) -> Option<i64> {
//!         node.as_i64()
//!     }
//! }
//!
//! let documents = parse("app.yaml", b"name: web\nreplcas: 2\nport: '80'\n", &Limits::default()).unwrap();
//! let report = Report::default();
//! let root = Value::<Plain>::new(&documents[0], "", &report);
//! let app = root.object(["name", "replicas", "port"].as_slice()).unwrap();
//! assert_eq!(app.string("name"), Some("web"));
//! assert_eq!(app.integer("port", 1..=65_535), None);
//!
//! let findings: Vec<String> = report.into_findings().iter().map(ToString::to_string).collect();
//! assert_eq!(findings, [
//!     "app.yaml:2:1: error: replcas: unknown key `replcas` (did you mean `replicas`?)",
//!     "app.yaml:3:7: error: port: must be a number, but `\"80\"` is a string (remove the quotes)",
//! ]);
//! ```

mod closest;
pub mod edit;
mod excerpt;
mod parse;
mod reader;
mod scalar;
mod tree;

pub use closest::closest;
pub use excerpt::with_excerpt;
pub use parse::{parse, parse_last_wins};
pub use reader::{Dialect, Keys, Object, Report, Support, Value};
pub use scalar::Scalar;
pub use tree::{Entry, Kind, Limits, Node, Place, join};
