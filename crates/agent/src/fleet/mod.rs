//! The fleet: this host reports to collectors, buckets and folders, joins and leaves them, and reads the reports of other hosts.

pub(crate) mod collector_client;
pub(crate) mod enrolments;
pub(crate) mod host_requests;
pub(crate) mod hosts;
pub(crate) mod join;
pub(crate) mod leave;
pub(crate) mod parsed_reports;
pub(crate) mod peers;
pub(crate) mod reader;
pub(crate) mod report_error;
pub(crate) mod report_object;
pub(crate) mod reports;
pub(crate) mod services;
pub(crate) mod source;
pub(crate) mod stored_reports;
pub(crate) mod targets;
