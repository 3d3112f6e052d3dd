//! Sends the lines of the log to an OpenTelemetry collector: the logs signal of OTLP over HTTP, as protobuf.
//!
//! The variables are those of the OpenTelemetry specification ("OpenTelemetry Protocol Exporter"). The library reads the ones that
//! are not named here: headers, timeout, resource attributes and the limits of the queue. Lines wait in memory, at most 2,048 by
//! default; a collector that does not answer never holds up who logs.
//!
//! ```
//! use driftless_otlp::collector;
//!
//! let environment = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "http://collector:4318".to_owned());
//! let (_, address) = collector(environment).unwrap();
//! assert_eq!(address, "http://collector:4318/v1/logs");
//! ```

use std::time::{Duration, SystemTime};

pub use opentelemetry::logs::Severity;
use opentelemetry::{
    InstrumentationScope, KeyValue,
    logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _},
};
use opentelemetry_otlp::{LogExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    logs::{SdkLogger, SdkLoggerProvider},
};
use serde_json::{Map, Value};

/// The address of a collector; `/v1/logs` is appended.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The address for logs, used as it is.
const LOGS_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT";

const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const LOGS_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL";

/// The only protocol that is implemented here.
const HTTP_PROTOBUF: &str = "http/protobuf";

/// Modules whose lines are about sending lines, which would make further lines to send.
const OF_THE_EXPORT: [&str; 5] = ["opentelemetry", "reqwest", "hyper", "h2", "rustls"];

/// Why lines of the log cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A protocol that is not implemented.
    #[error(
        "{variable} is {value:?}; only {HTTP_PROTOBUF:?} is supported: use the HTTP port of the collector, usually 4318"
    )]
    Protocol { variable: &'static str, value: String },
    /// The address or another setting is wrong.
    #[error("cannot send the log to {endpoint:?}, which {variable} names: {error}")]
    Exporter { variable: &'static str, endpoint: String, error: opentelemetry_otlp::ExporterBuildError },
}

/// A line of the log.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    pub severity: Severity,
    /// The module that logs.
    pub target: &'static str,
    pub message: &'a str,
    pub fields: &'a Map<String, Value>,
}

/// The way to a collector.
#[derive(Debug)]
pub struct LogExport {
    provider: SdkLoggerProvider,
    logger: SdkLogger,
}

/// The variable that names a collector, and the address for logs.
///
/// `None` if no variable does, or if `OTEL_SDK_DISABLED` or `OTEL_LOGS_EXPORTER` turns it off.
pub fn collector(environment: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let value = |name| environment(name).filter(|value| !value.is_empty());
    let is_disabled = value("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
    if is_disabled || value("OTEL_LOGS_EXPORTER").is_some_and(|it| it == "none") {
        return None;
    }
    value(LOGS_ENDPOINT).map(|endpoint| (LOGS_ENDPOINT, endpoint)).or_else(|| {
        value(ENDPOINT).map(|endpoint| (ENDPOINT, format!("{}/v1/logs", endpoint.trim_end_matches('/'))))
    })
}

/// The name of the service: that of its own variable, else that among the attributes, else that of the program.
fn service_name(environment: impl Fn(&str) -> Option<String>) -> String {
    let among_attributes = || {
        let attributes = environment("OTEL_RESOURCE_ATTRIBUTES")?;
        // Of several, the last one counts, as for the library.
        let mut pairs = attributes.rsplit(',').filter_map(|attribute| attribute.split_once('='));
        pairs.find(|(key, _)| key.trim() == "service.name").map(|(_, value)| value.trim().to_owned())
    };
    environment("OTEL_SERVICE_NAME")
        .filter(|name| !name.is_empty())
        .or_else(among_attributes)
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "driftless".to_owned())
}

impl LogExport {
    /// The way to the collector that the environment names, if it names one. Nothing is sent yet.
    ///
    /// # Errors
    ///
    /// A setting that makes no sense. A collector that does not answer is none: the library logs it at each attempt.
    pub fn from_environment(
        environment: impl Fn(&str) -> Option<String>,
        version: &'static str,
    ) -> Result<Option<Self>, Error> {
        let Some((variable, endpoint)) = collector(&environment) else { return Ok(None) };
        let protocol = [LOGS_PROTOCOL, PROTOCOL]
            .into_iter()
            .find_map(|name| environment(name).filter(|value| !value.is_empty()).map(|value| (name, value)));
        if let Some((variable, value)) = protocol.filter(|(_, value)| value != HTTP_PROTOBUF) {
            return Err(Error::Protocol { variable, value });
        }
        let exporter = LogExporter::builder().with_http().with_endpoint(&endpoint).build();
        let exporter = exporter.map_err(|error| Error::Exporter { variable, endpoint, error })?;
        let resource = Resource::builder()
            .with_attribute(KeyValue::new("service.version", version))
            .with_service_name(service_name(&environment));
        let provider = SdkLoggerProvider::builder()
            .with_resource(resource.build())
            .with_batch_exporter(exporter)
            .build();
        let scope = InstrumentationScope::builder("driftless").with_version(version).build();
        let logger = provider.logger_with_scope(scope);
        Ok(Some(Self { provider, logger }))
    }

    /// Puts a line into the queue. It is sent about a second later, with others. If the queue is full, it is left out.
    #[expect(
        clippy::disallowed_methods,
        reason = "lines have the time of the machine, also while time is simulated"
    )]
    pub fn send(&self, line: Line<'_>) {
        if OF_THE_EXPORT.iter().any(|module| line.target.starts_with(module)) {
            return;
        }
        let now = SystemTime::now();
        let mut record = self.logger.create_log_record();
        record.set_timestamp(now);
        record.set_observed_timestamp(now);
        record.set_severity_number(line.severity);
        record.set_severity_text(line.severity.name());
        record.set_target(line.target);
        record.set_body(AnyValue::from(line.message.to_owned()));
        record.add_attributes(line.fields.iter().map(|(name, value)| (name.clone(), any_value(value))));
        self.logger.emit(record);
    }

    /// Sends all lines that wait, for at most this long, and ends the export.
    pub fn finish(&self, limit: Duration) {
        // The library has logged why the last lines could not be sent.
        let _ = self.provider.shutdown_with_timeout(limit);
    }
}

/// Numbers and booleans keep their type. Numbers beyond 64 bits with sign, lists and objects become text.
fn any_value(value: &Value) -> AnyValue {
    match value {
        Value::Bool(value) => AnyValue::Boolean(*value),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => AnyValue::Int(whole),
            (None, Some(broken)) if number.is_f64() => AnyValue::Double(broken),
            _ => AnyValue::from(number.to_string()),
        },
        Value::String(text) => AnyValue::from(text.clone()),
        other => AnyValue::from(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader, Read, Write},
        net::TcpListener,
        thread,
    };

    use opentelemetry_proto::tonic::{
        collector::logs::v1::ExportLogsServiceRequest, common::v1::any_value::Value as Sent,
    };
    use prost::Message as _;
    use serde_json::json;

    use super::*;

    /// The values of these variables and of no other.
    fn environment<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| set.iter().find(|(it, _)| *it == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn collector_is_named_by_the_variables_of_the_specification() {
        let address = |set: &[(&str, &str)]| collector(environment(set)).map(|(_, endpoint)| endpoint);
        let both = [(ENDPOINT, "http://c:4318/"), (LOGS_ENDPOINT, "http://l/in")];
        assert_eq!(address(&[]), None);
        assert_eq!(address(&[(ENDPOINT, "")]), None);
        assert_eq!(address(&both[..1]).as_deref(), Some("http://c:4318/v1/logs"));
        assert_eq!(address(&both).as_deref(), Some("http://l/in"));
        assert_eq!(address(&[both[0], ("OTEL_SDK_DISABLED", "TRUE")]), None);
        assert_eq!(address(&[both[0], ("OTEL_LOGS_EXPORTER", "none")]), None);
    }

    #[test]
    fn service_has_the_name_of_the_environment() {
        let name = |set: &[(&str, &str)]| service_name(environment(set));
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=home, service.name = nas");
        assert_eq!(name(&[]), "driftless");
        assert_eq!(name(&[("OTEL_SERVICE_NAME", ""), attributes]), "nas");
        assert_eq!(name(&[("OTEL_SERVICE_NAME", "agent"), attributes]), "agent");
        assert_eq!(name(&[("OTEL_RESOURCE_ATTRIBUTES", "service.name=,a=b")]), "driftless");
    }

    #[test]
    fn protocols_that_are_not_implemented_are_refused() {
        let set = [(ENDPOINT, "http://c:4317"), (PROTOCOL, "grpc")];
        let error = LogExport::from_environment(environment(&set), "1").unwrap_err().to_string();
        assert!(error.contains("OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\""), "{error}");
        let set = [set[0], set[1], (LOGS_PROTOCOL, HTTP_PROTOBUF)];
        assert!(LogExport::from_environment(environment(&set), "1").unwrap().is_some());
    }

    #[test]
    fn wrong_address_is_an_error_with_its_variable() {
        let set = [(LOGS_ENDPOINT, "not an address")];
        let error = LogExport::from_environment(environment(&set), "1").unwrap_err().to_string();
        assert!(
            error.starts_with(
                "cannot send the log to \"not an address\", which OTEL_EXPORTER_OTLP_LOGS_ENDPOINT names: "
            ),
            "{error}"
        );
    }

    /// Answers one request, and returns its first line and its body.
    fn receive(listener: &TcpListener) -> (String, Vec<u8>) {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_ascii_lowercase());
        }
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        reader
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .unwrap();
        (head[0].clone(), body)
    }

    #[test]
    fn line_reaches_a_collector_with_its_fields() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || receive(&listener));
        let set = [(ENDPOINT, address.as_str())];
        let export = LogExport::from_environment(environment(&set), "1.2.3").unwrap().unwrap();
        let fields = json!({ "app": "shop", "round": 12, "healed": true, "took": 0.5, "huge": u64::MAX });
        let line = Line {
            severity: Severity::Warn,
            target: "driftless_agent",
            message: "the round failed",
            fields: fields.as_object().unwrap(),
        };
        export.send(Line { target: "hyper_util::client", ..line });
        export.send(line);
        export.finish(Duration::from_secs(10));

        let (request, body) = server.join().unwrap();
        assert_eq!(request, "post /v1/logs http/1.1");
        let body = ExportLogsServiceRequest::decode(body.as_slice()).unwrap();
        let resource = body.resource_logs[0].resource.as_ref().unwrap();
        let of = |attributes: &[opentelemetry_proto::tonic::common::v1::KeyValue], name: &str| {
            let found = attributes.iter().find(|it| it.key == name);
            found.and_then(|it| it.value.clone()).and_then(|it| it.value)
        };
        let text = |text: &str| Some(Sent::StringValue(text.to_owned()));
        assert_eq!(of(&resource.attributes, "service.name"), text("driftless"));
        assert_eq!(of(&resource.attributes, "service.version"), text("1.2.3"));
        let records = &body.resource_logs[0].scope_logs[0].log_records;
        assert_eq!(records.len(), 1, "lines about the export itself are not sent");
        let record = &records[0];
        assert_eq!(record.severity_text, "WARN");
        assert_eq!(record.body.clone().unwrap().value, text("the round failed"));
        assert_eq!(of(&record.attributes, "app"), text("shop"));
        assert_eq!(of(&record.attributes, "round"), Some(Sent::IntValue(12)));
        assert_eq!(of(&record.attributes, "healed"), Some(Sent::BoolValue(true)));
        assert_eq!(of(&record.attributes, "took"), Some(Sent::DoubleValue(0.5)));
        assert_eq!(of(&record.attributes, "huge"), text("18446744073709551615"));
    }
}
