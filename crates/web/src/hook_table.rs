//! The webhooks on the page: what each heard last, what became of it, and what is wrong.

use std::fmt::{self, Write};

use super::html::{Moment, Text};
use driftless_model::{Delivery, DeliveryResult, HookStatus, Timestamp};

pub(super) fn hook_table(out: &mut String, hooks: &[HookStatus], now: Timestamp) -> fmt::Result {
    if hooks.is_empty() {
        return Ok(());
    }
    out.push_str(
        "<section class=\"block\" aria-label=\"Webhooks\"><h3>Webhooks</h3>\n<div class=\"scroll\"><table><thead>\
         <tr><th scope=\"col\">Repository</th><th scope=\"col\">From</th><th scope=\"col\">Last delivery</th>\
         <th scope=\"col\">Event</th><th scope=\"col\">Result</th><th scope=\"col\">What became of it</th></tr>\
         </thead><tbody>\n",
    );
    for hook in hooks {
        match &hook.last {
            Some(last) => row(out, hook, last, now)?,
            None => writeln!(
                out,
                r#"<tr><td>{}</td><td>{}</td><td colspan="4">nothing was delivered yet</td></tr>"#,
                Text(&hook.repository),
                hook.provider,
            )?,
        }
    }
    out.push_str("</tbody></table></div>\n");
    for hook in hooks {
        remarks(out, hook, now)?;
    }
    out.push_str("</section>\n");
    Ok(())
}

fn row(out: &mut String, hook: &HookStatus, last: &Delivery, now: Timestamp) -> fmt::Result {
    let Delivery { id, at, provider, event, reference, commit: _, from: _, result, message, outcome } = last;
    let became = match outcome {
        Some(outcome) => outcome.message.as_str(),
        None if matches!(result, DeliveryResult::Accepted | DeliveryResult::Duplicate) => "being fetched",
        None => message.as_str(),
    };
    writeln!(
        out,
        r#"<tr><td>{}</td><td>{provider}</td><td><span title="{}">{}</span></td><td>{} <span class="mono">{}</span></td><td><span class="badge {}">{result}</span></td><td>{}</td></tr>"#,
        Text(&hook.repository),
        Text(id),
        Moment { at: *at, now },
        Text(event),
        Text(reference.as_deref().unwrap_or_default()),
        class(*result),
        Text(became),
    )
}

fn remarks(out: &mut String, hook: &HookStatus, now: Timestamp) -> fmt::Result {
    let name = Text(&hook.repository);
    if let Some(trouble) = &hook.trouble {
        writeln!(out, r#"<p class="note bad"><b>The webhook of {name} is off.</b> {}</p>"#, Text(trouble))?;
    }
    if let Some(missed) = &hook.missed {
        writeln!(
            out,
            r#"<p class="note warn"><b>WebhookMissed</b> {name}, {}: {}</p>"#,
            Moment { at: missed.at, now },
            Text(missed),
        )?;
    }
    let is_newer = |it: &&Delivery| hook.last.as_ref().is_none_or(|last| it.at >= last.at);
    if let Some(refused) = hook.last_refused.as_ref().filter(is_newer) {
        writeln!(
            out,
            r#"<p class="note warn"><b>Refused</b> {name}, {}, from {}: {}</p>"#,
            Moment { at: refused.at, now },
            Text(&refused.from),
            Text(&refused.message),
        )?;
    }
    Ok(())
}

fn class(result: DeliveryResult) -> &'static str {
    match result {
        DeliveryResult::Accepted => "good",
        DeliveryResult::Duplicate | DeliveryResult::Ignored | DeliveryResult::Pong => "idle",
        DeliveryResult::Refused => "bad",
    }
}
