//! Findings: errors and warnings about a manifest, each with its place. All of them are reported.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Severity of a finding. After an error the application is not applied; running containers stay as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    Warning,
    Error,
}

/// A place in a file of the repository. Lines and columns count from 1; 0 means "the file as a whole".
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Path from the repository's root, with `/`.
    pub file: String,
    pub line: u32,
    pub column: u32,
}

/// One located remark about a manifest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Finding {
    pub severity: Severity,
    pub location: Location,
    /// The place in the document, such as `services.web.ports[0]`; empty for the document as a whole.
    pub path: String,
    /// The error or warning.
    pub message: String,
    /// The advice how to correct it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub help: Option<String>,
    /// The source line it points at, for people. Never set where it could hold a secret.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub excerpt: Option<String>,
}

impl Finding {
    pub fn error(location: Location, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, location, path.into(), message.into())
    }

    pub fn warning(location: Location, path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, location, path.into(), message.into())
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    fn new(severity: Severity, location: Location, path: String, message: String) -> Self {
        Self { severity, location, path, message, help: None, excerpt: None }
    }
}

impl Location {
    pub fn file(file: impl Into<String>) -> Self {
        Self { file: file.into(), line: 0, column: 0 }
    }

    pub fn new(file: impl Into<String>, line: u32, column: u32) -> Self {
        Self { file: file.into(), line, column }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => f.write_str(&self.file),
            (line, 0) => write!(f, "{}:{line}", self.file),
            (line, column) => write!(f, "{}:{line}:{column}", self.file),
        }
    }
}

/// One line: `sites/shop/compose.yaml:4:5: error: services.web.imag: unknown field`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        if !self.location.file.is_empty() {
            write!(f, "{}: ", self.location)?;
        }
        write!(f, "{severity}: ")?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        if let Some(help) = &self.help {
            write!(f, " ({help})")?;
        }
        Ok(())
    }
}
