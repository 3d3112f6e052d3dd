//! Requests and limits.
//!
//! A limit of CPU is a quota and a request of CPU a weight; a limit of memory is hard and a request of memory the
//! engine's soft limit. Other resources are not supported and are errors.

use std::collections::BTreeMap;

use super::{
    quantity::Quantity,
    reader::{Object, Value, closest},
};
use driftless_model::{DeviceRequest, Finding, Resources};

/// The least memory limit that the engine accepts, in bytes.
const LEAST_MEMORY: u64 = 6 * 1024 * 1024;

/// The least CPU limit that the engine accepts: 0.01.
const LEAST_CPU: u64 = 10_000_000;

/// The resource name of GPUs in NVIDIA's device plugin.
const GPU: &str = "nvidia.com/gpu";

/// The resources of a container.
pub(super) struct Given {
    pub(super) resources: Resources,
    pub(super) devices: Vec<DeviceRequest>,
}

type Amounts<'a> = BTreeMap<&'a str, (Quantity, Value<'a>)>;

pub(super) fn read(object: &Object<'_>) -> Given {
    let limits = amounts(object, "limits");
    let requests = amounts(object, "requests");
    for (name, (wanted, value)) in &requests {
        if let Some((limit, _)) = limits.get(name)
            && wanted > limit
            && *name != GPU
        {
            value.error(format!("the request of {name} is higher than its limit"));
        }
    }
    let cpu_limit = positive(&limits, "cpu");
    let devices = gpus(&limits, &requests);
    // A missing request defaults to the limit, as in Kubernetes.
    let cpu_request = positive(&requests, "cpu").or_else(|| cpu_limit.clone());
    let resources = Resources {
        nano_cpus: cpu_limit.and_then(|(amount, value)| nano_cpus(amount, &value)),
        memory: positive(&limits, "memory").and_then(|(amount, value)| memory(amount, &value)),
        memory_reservation: positive(&requests, "memory")
            .and_then(|(amount, value)| reservation(amount, &value)),
        cpu_shares: cpu_request.and_then(|(amount, _)| amount.millis()).map(shares),
        ..Resources::default()
    };
    Given { resources, devices }
}

/// Whole GPUs; the request must equal the limit, as with the device plugin.
fn gpus(limits: &Amounts<'_>, requests: &Amounts<'_>) -> Vec<DeviceRequest> {
    if let Some((wanted, value)) = requests.get(GPU)
        && limits.get(GPU).is_none_or(|(limit, _)| limit != wanted)
    {
        value.error_help(
            format!("the request of {GPU} must be equal to its limit"),
            "write it under `limits`",
        );
    }
    let Some((amount, value)) = positive(limits, GPU) else { return Vec::new() };
    let count = amount.units().filter(|_| amount.is_whole());
    let Some(count) = count.and_then(|it| i64::try_from(it).ok()) else {
        value.error("a container is given whole GPUs");
        return Vec::new();
    };
    let capabilities = vec!["gpu".to_owned()];
    vec![DeviceRequest { driver: "nvidia".to_owned(), count, capabilities, ..DeviceRequest::default() }]
}

fn positive<'a>(from: &Amounts<'a>, name: &str) -> Option<(Quantity, Value<'a>)> {
    from.get(name).filter(|(amount, _)| !amount.is_zero()).cloned()
}

/// All amounts under `limits` or `requests`; unsupported resources are reported.
fn amounts<'a>(object: &Object<'a>, key: &str) -> Amounts<'a> {
    let mut found = BTreeMap::new();
    let Some(map) = object.get(key) else { return found };
    for (name, value) in map.pairs() {
        let Some(amount) = quantity(&value) else { continue };
        match name {
            "cpu" | "memory" | GPU => {
                found.insert(name, (amount, value));
            }
            _ if amount.is_zero() => {}
            "ephemeral-storage" => {
                value.warning("has no effect: the engine does not limit what a container writes");
            }
            // Extended resources have a domain as prefix.
            _ if !name.contains('/') && !name.starts_with("hugepages-") => {
                let message = format!("`{name}` is not a resource that Kubernetes knows");
                match closest(name, ["cpu", "memory", "ephemeral-storage"]) {
                    Some(near) => value.error_help(message, format!("did you mean `{near}`?")),
                    None => value.error(message),
                }
            }
            _ => {
                let message = format!(
                    "the resource `{name}` is not supported yet, and ignoring it would change how the application works"
                );
                let device =
                    "mount its device, such as `/dev/dri/renderD128`, as a `hostPath` of type `CharDevice`";
                if name.contains('/') { value.error_help(message, device) } else { value.error(message) }
            }
        }
    }
    found
}

/// A quantity, or a finding.
pub(super) fn quantity(value: &Value<'_>) -> Option<Quantity> {
    // A number without quotes is allowed here, in contrast to other strings.
    let parsed = match value.node.as_i64() {
        Some(number) => Quantity::parse(&number.to_string()),
        None => value.node.as_scalar().and_then(Quantity::parse),
    };
    if parsed.is_none() {
        let message = match value.node.as_scalar() {
            Some(text) if text.starts_with('-') => format!("`{text}` is negative"),
            Some(text) => format!("`{text}` is not a quantity"),
            None => format!("must be a quantity, but it is a {}", value.node.kind_name()),
        };
        value.error_help(message, "write it as `500m`, `0.5`, `64Mi` or `1G`");
    }
    parsed
}

fn nano_cpus(amount: Quantity, value: &Value<'_>) -> Option<u64> {
    let nanos = amount.nanos();
    match nanos {
        None => value.error("is more CPU than can be counted"),
        Some(nanos) if nanos < LEAST_CPU => {
            value.warning("is less than the engine can limit to; the limit is a hundredth of a CPU");
        }
        Some(_) => {}
    }
    nanos.map(|it| it.max(LEAST_CPU))
}

fn memory(amount: Quantity, value: &Value<'_>) -> Option<u64> {
    let bytes = amount.units().filter(|it| i64::try_from(*it).is_ok());
    match bytes {
        None => value.error("is more memory than can be counted"),
        Some(bytes) if bytes < LEAST_MEMORY => {
            let finding = value.node.finding(&*value.path, "is less than the 6 MiB that the engine asks for");
            let text = value.node.as_scalar().unwrap_or_default();
            value.report().say(with_unit(finding, text));
        }
        Some(_) => {}
    }
    bytes
}

/// `64m` is 64 thousandths of a byte, and `64` is 64 bytes.
fn with_unit(finding: Finding, text: &str) -> Finding {
    let digits = text.trim_end_matches('m');
    if !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit()) && digits.len() <= 6 {
        finding.help(format!("did you mean `{digits}Mi`?"))
    } else {
        finding.help("raise it to `6Mi` or more")
    }
}

fn reservation(amount: Quantity, value: &Value<'_>) -> Option<u64> {
    let bytes = amount.units().filter(|it| i64::try_from(*it).is_ok());
    match bytes {
        None => value.error("is more memory than can be counted"),
        Some(bytes) if bytes < LEAST_MEMORY => {
            value.warning("has no effect: the engine cannot reserve less than 6 MiB");
            return None;
        }
        Some(_) => {}
    }
    bytes
}

/// CPU shares: 1024 per CPU, within the kernel's bounds, as the kubelet computes them.
fn shares(millis: u64) -> u64 {
    (millis.saturating_mul(1024) / 1000).clamp(2, 262_144)
}
