//! The problems of the agent itself that do not keep it from its work, such as a certificate that cannot be read again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use driftless_model::AgentProblem;

/// The present problems, one for each subject. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Problems(Arc<Mutex<BTreeMap<&'static str, String>>>);

impl Problems {
    /// Sets the problem of a subject, or ends it.
    pub fn set(&self, subject: &'static str, message: Option<String>) {
        let mut problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match message {
            Some(message) => problems.insert(subject, message),
            None => problems.remove(subject),
        };
    }

    /// The problem of a subject. `None`: it has none.
    pub fn message(&self, subject: &str) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(subject).cloned()
    }

    /// All problems, by subject.
    pub fn list(&self) -> Vec<AgentProblem> {
        let problems = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let problem = |(subject, message): (&&str, &String)| AgentProblem {
            subject: (*subject).to_owned(),
            message: message.clone(),
        };
        problems.iter().map(problem).collect()
    }
}
