//! Prometheus' own text format, version 0.0.4, which every scraper reads. What is at hand writes `OpenMetrics`, its
//! successor, in which the names of counters, the units and the end are told differently.

use prometheus_client::encoding::text::encode_registry;
use prometheus_client::registry::Registry;

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) fn encode<const N: usize>(registries: [&Registry; N]) -> String {
    let mut text = String::new();
    for registry in registries {
        encode_registry(&mut text, registry).expect("writing to a string does not fail");
    }
    plain(&text)
}

fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
            continue;
        }
        if line.starts_with("# UNIT ") {
            continue;
        }
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                text.extend(["# HELP ", name, suffix, " ", help, "\n"]);
            }
            text.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_as_they_are_counted() {
        let open_metrics = "# HELP a_b Beans.\n# TYPE a_b counter\na_b_total{c=\"d\"} 7\n\
                            # HELP e_seconds Time.\n# TYPE e_seconds gauge\n# UNIT e_seconds seconds\ne_seconds 1.5\n";
        let text = "# HELP a_b_total Beans.\n# TYPE a_b_total counter\na_b_total{c=\"d\"} 7\n\
                    # HELP e_seconds Time.\n# TYPE e_seconds gauge\ne_seconds 1.5\n";
        assert_eq!(plain(open_metrics), text);
    }
}
