//! A second place for the lines of the log: an OpenTelemetry collector, in programs that are built with the feature `otlp`.

use super::{context::Environment, log_format::LineTaker};

/// The way of the log to the collector that the environment names.
pub struct LogExport(#[cfg(feature = "otlp")] std::sync::Arc<driftless_otlp::LogExport>);

/// Why the log is not sent although the environment names a collector.
#[derive(Debug, thiserror::Error)]
pub enum LogExportError {
    #[cfg(feature = "otlp")]
    #[error(transparent)]
    Settings(#[from] driftless_otlp::Error),
    #[cfg(not(feature = "otlp"))]
    #[error(
        "{0} is set, but this program cannot send its log to a collector: build it with `cargo build --release --features otlp`"
    )]
    NotBuilt(&'static str),
}

#[cfg(feature = "otlp")]
impl LogExport {
    /// The time that the end of the program waits for the last lines to arrive.
    const LAST_LINES: std::time::Duration = std::time::Duration::from_secs(2);

    /// The way to the collector that the environment names, if it names one.
    pub fn start(environment: &Environment) -> Result<Option<Self>, LogExportError> {
        let export =
            driftless_otlp::LogExport::from_environment(|name| environment(name), env!("CARGO_PKG_VERSION"))?;
        Ok(export.map(|export| Self(export.into())))
    }

    /// Takes lines for the collector.
    pub fn taker(&self) -> LineTaker {
        use tracing::Level;

        let export = self.0.clone();
        Box::new(move |metadata, message, fields| {
            let severity = match *metadata.level() {
                Level::ERROR => driftless_otlp::Severity::Error,
                Level::WARN => driftless_otlp::Severity::Warn,
                Level::INFO => driftless_otlp::Severity::Info,
                Level::DEBUG => driftless_otlp::Severity::Debug,
                Level::TRACE => driftless_otlp::Severity::Trace,
            };
            export.send(driftless_otlp::Line { severity, target: metadata.target(), message, fields });
        })
    }

    /// Sends the lines that wait.
    pub fn finish(self) {
        self.0.finish(Self::LAST_LINES);
    }
}

#[cfg(not(feature = "otlp"))]
impl LogExport {
    /// An error if the environment names a collector.
    pub fn start(environment: &Environment) -> Result<Option<Self>, LogExportError> {
        let named = ["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        let named = named.into_iter().find(|name| environment(name).is_some_and(|value| !value.is_empty()));
        named.map_or(Ok(None), |name| Err(LogExportError::NotBuilt(name)))
    }

    /// Nothing takes lines in this program.
    pub fn taker(&self) -> LineTaker {
        Box::new(|_, _, _| ())
    }

    /// Nothing waits in this program.
    pub fn finish(self) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn start(set: &'static [(&str, &str)]) -> Result<Option<LogExport>, LogExportError> {
        let environment: Environment =
            Arc::new(|name| set.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned()));
        LogExport::start(&environment)
    }

    #[test]
    fn without_a_collector_nothing_is_sent() {
        assert!(matches!(start(&[]), Ok(None)));
        assert!(matches!(start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(None)));
    }

    #[cfg(not(feature = "otlp"))]
    #[test]
    fn program_without_the_feature_names_the_variable_that_needs_it() {
        let error = start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")]).err().unwrap().to_string();
        assert!(error.starts_with("OTEL_EXPORTER_OTLP_ENDPOINT is set, but"), "{error}");
    }

    #[cfg(feature = "otlp")]
    #[test]
    fn program_with_the_feature_refuses_another_protocol() {
        let set =
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
        assert!(start(set).err().unwrap().to_string().contains("\"grpc\""));
        assert!(matches!(start(&set[..1]), Ok(Some(_))));
    }
}
