//! The kinds of calls to the engine.

/// A call to the engine, as the label `operation` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineCall {
    name: &'static str,
    is_image: bool,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// The engine did it.
    Done,
    /// The engine refused it or did not answer.
    Failed,
}

impl EngineCall {
    /// A call that takes as long as one answer.
    pub const fn new(name: &'static str) -> Self {
        Self { name, is_image: false }
    }

    /// A pull, build or import, which takes as long as a network or a program needs.
    pub const fn of_image(name: &'static str) -> Self {
        Self { name, is_image: true }
    }

    pub(crate) fn name(self) -> &'static str {
        self.name
    }

    pub(crate) fn is_image(self) -> bool {
        self.is_image
    }
}

impl Called {
    /// The value of the label `result`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Done => "ok",
            Self::Failed => "error",
        }
    }
}
