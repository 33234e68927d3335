//! The log as JSON: one object in a line, with the fields of the event and of the spans it happened in.

use std::fmt;

use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::LookupSpan,
};

use crate::sanitize;

/// The format.
pub(crate) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let spans = context.event_scope().map(|scope| {
            let span = |span: tracing_subscriber::registry::SpanRef<'_, S>| {
                let extensions = span.extensions();
                let fields = extensions.get::<FormattedFields<N>>();
                match fields.map(|fields| fields.fields.as_str()).filter(|text| !text.is_empty()) {
                    Some(fields) => format!("{}{{{fields}}}", span.name()),
                    None => span.name().to_owned(),
                }
            };
            scope.from_root().map(span).map(|text| sanitize(&text).into()).collect()
        });
        let mut object = Map::new();
        let metadata = event.metadata();
        object.insert("time".into(), jiff::Timestamp::now().to_string().into());
        object.insert("level".into(), metadata.level().as_str().into());
        object.insert("target".into(), metadata.target().into());
        object.extend(fields.message.map(|text| ("message".into(), text.into())));
        object.insert("fields".into(), fields.others.into());
        object.extend(spans.map(|spans| ("spans".into(), Value::Array(spans))));
        writeln!(writer, "{}", Value::Object(object))
    }
}

/// The fields of an event.
#[derive(Default)]
struct Fields {
    message: Option<String>,
    others: Map<String, Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: impl Into<Value>) {
        self.others.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            // Before it is JSON: what is made visible afterwards would not be JSON any more.
            "message" => self.message = Some(sanitize(value).into_owned()),
            _ => self.add(field, sanitize(value).into_owned()),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Write},
        sync::{Arc, Mutex},
    };

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_object_in_one_line() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt().event_format(Json).with_writer(move || writer.clone());
        tracing::subscriber::with_default(log.finish(), || {
            let _span = tracing::info_span!("request", id = 7).entered();
            tracing::warn!(path = "/a\n\"b\"", status = 429_u64, "refused\nhere \u{9b}2J");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["level"], "WARN");
        assert_eq!(value["message"], "refused\nhere \\u{9b}2J");
        assert_eq!(value["fields"], serde_json::json!({ "path": "/a\n\"b\"", "status": 429 }));
        assert_eq!(value["spans"], serde_json::json!(["request{id=7}"]));
    }
}
