//! The table of webhooks: the last delivery of each repository, its result, and errors.

use driftless_model::{Delivery, DeliveryResult, Timestamp, WebhookStatus};
use maud::{Markup, html};

use super::text::{RelativeTime, Text};

/// Nothing where no webhook is configured.
pub(super) fn webhook_table(hooks: &[WebhookStatus], now: Timestamp) -> Markup {
    html! {
        @if !hooks.is_empty() {
            section aria-label="Webhooks" {
                h2 { "Webhook" }
                div.scroll tabindex="0" {
                    table.stack {
                        thead {
                            tr {
                                th scope="col" { "Repository" }
                                th scope="col" { "From" }
                                th scope="col" { "Last delivery" }
                                th scope="col" { "Event" }
                                th scope="col" { "Result" }
                                th scope="col" { "Outcome" }
                            }
                        }
                        tbody { @for hook in hooks { (row(hook, now)) } }
                    }
                }
                @for hook in hooks { (problems(hook, now)) }
            }
        }
    }
}

fn row(hook: &WebhookStatus, now: Timestamp) -> Markup {
    let repository = Text(&hook.repository);
    let Some(last) = &hook.last else {
        return html! {
            tr { td { (repository) } td { (Text(hook.provider)) } td colspan="4" { "no delivery yet" } }
        };
    };
    html! { tr { td { (repository) } (cells(last, now)) } }
}

/// Deliveries that are not the last one of a webhook, folded. Nothing if there are none.
pub(super) fn earlier_deliveries(deliveries: &[Delivery], now: Timestamp) -> Markup {
    html! {
        @if !deliveries.is_empty() {
            details #earlier-deliveries {
                summary { "Earlier deliveries: " (deliveries.len()) }
                div.scroll tabindex="0" {
                    table.stack {
                        thead {
                            tr {
                                th scope="col" { "From" }
                                th scope="col" { "Delivery" }
                                th scope="col" { "Event" }
                                th scope="col" { "Result" }
                                th scope="col" { "Outcome" }
                            }
                        }
                        tbody { @for delivery in deliveries { tr { (cells(delivery, now)) } } }
                    }
                }
            }
        }
    }
}

/// A delivery, but for its repository.
fn cells(delivery: &Delivery, now: Timestamp) -> Markup {
    let Delivery { id, at, provider, event, reference, result, message, outcome, .. } = delivery;
    let outcome = match outcome {
        Some(outcome) => outcome.message.as_str(),
        None if matches!(result, DeliveryResult::Accepted | DeliveryResult::Duplicate) => "fetching",
        None => message.as_str(),
    };
    html! {
        td { (Text(provider)) }
        td { span title=(Text(id)) { (RelativeTime { at: *at, now }) } }
        td { (Text(event)) " " span.mono { (Text(reference.as_deref().unwrap_or_default())) } }
        td { span.badge.(class(*result)) { (Text(result)) } }
        td.text { (Text(outcome)) }
    }
}

/// Why a webhook is off, pushes that it missed, and the last delivery that was refused.
fn problems(hook: &WebhookStatus, now: Timestamp) -> Markup {
    let name = &hook.repository;
    let is_newer = |refused: &&Delivery| hook.last.as_ref().is_none_or(|last| refused.at >= last.at);
    html! {
        @if let Some(trouble) = &hook.trouble {
            p.note.bad { b { "The webhook of " (Text(name)) " is off." } " " (Text(trouble)) }
        }
        @if let Some(missed) = &hook.missed {
            p.note.warn {
                b { "WebhookMissed" } " " (Text(name)) ", " (RelativeTime { at: missed.at, now }) ": " (Text(missed))
            }
        }
        @if let Some(refused) = hook.last_refused.as_ref().filter(is_newer) {
            p.note.warn {
                b { "Refused" } " " (Text(name)) ", " (RelativeTime { at: refused.at, now }) ", from "
                (Text(&refused.from)) ": " (Text(&refused.message))
            }
        }
    }
}

fn class(result: DeliveryResult) -> &'static str {
    match result {
        DeliveryResult::Accepted => "good",
        DeliveryResult::Duplicate | DeliveryResult::Ignored | DeliveryResult::Pong => "idle",
        DeliveryResult::Refused => "bad",
    }
}
