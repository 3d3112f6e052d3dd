//! Reports of drift and of previews, and their output formats: text, diff, JSON, NDJSON, Markdown, SARIF, JUnit and
//! workflow annotations.
//!
//! Pure: a report is built from the differences that [`driftless_plan`] finds, and every format renders that one
//! value, so all formats say the same. Nothing here reads Docker or Git, prints, or decides the exit code. Values
//! arrive masked. Everything is sorted by
//! application, kind, name and path, so that equal inputs give equal reports. `docs/report.schema.json` describes
//! the JSON.
//!
//! ```
//! use driftless_report::{Kind, Report, headline, json};
//!
//! let report = Report::new(Kind::Drift);
//! assert_eq!(headline(&report), "no applications");
//! assert!(json(&report).contains("\"schemaVersion\""));
//! ```

mod annotations;
mod build;
mod ignore;
mod json;
mod junit;
mod markdown;
mod report;
mod sarif;
mod select;
mod text;

pub use annotations::annotations;
pub use build::{
    Context, application, application_removed, errors_mended, of_live, of_settings, of_stacks, settle,
};
pub use ignore::{Ignore, InvalidRule};
pub use json::{json, ndjson};
pub use junit::junit;
pub use markdown::{COMMENT_LIMIT, STEP_SUMMARY_LIMIT, markdown, marker};
pub use report::{Action, App, Item, Kind, ObjectDiff, Report, Summary, Type};
pub use sarif::sarif;
pub use select::{InvalidSelector, Selector, ignore, keep_objects};
pub use text::{diff, headline, text};
