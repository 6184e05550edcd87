//! Plots: lines over the last quarter of an hour, drawn by the server.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::history::{STEPS, Values};

/// In units of the drawing, which is stretched to where it is shown.
const HEIGHT: f64 = 48.0;

/// What stays free above the highest point, so that its line is not cut.
const MARGIN: f64 = 2.0;

/// One line.
pub(super) struct Series {
    /// Its colour, by name.
    pub(super) class: &'static str,
    pub(super) values: Values,
    /// With the area below it.
    pub(super) filled: bool,
}

/// The highest value of all, if there is any.
pub(super) fn highest<'a>(series: impl IntoIterator<Item = &'a Series>) -> Option<f64> {
    series.into_iter().flat_map(|series| &series.values).flatten().copied().reduce(f64::max)
}

/// Lines from nothing to `top`. `says` tells somebody who does not see them what they show.
pub(super) fn lines(series: &[Series], top: f64, says: &str) -> Markup {
    let top = if top > 0.0 { top } else { 1.0 };
    html! {
        svg.plot viewBox={ "0 0 " (STEPS - 1) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(says) {
            line.grid x1="0" x2=(STEPS - 1) y1=(MARGIN) y2=(MARGIN) {}
            line.grid x1="0" x2=(STEPS - 1) y1=(HEIGHT / 2.0 + MARGIN / 2.0) y2=(HEIGHT / 2.0 + MARGIN / 2.0) {}
            line.base x1="0" x2=(STEPS - 1) y1=(HEIGHT) y2=(HEIGHT) {}
            // Where nothing ever happened, a line would only lie on the base.
            @for one in series.iter().filter(|one| one.filled || one.values.iter().flatten().any(|value| *value > 0.0)) {
                @for run in runs(&one.values) {
                    @if one.filled { path class={ "area " (one.class) } d=(area(&run, top)) {} }
                    path class={ "line " (one.class) } d=(path(&run, top)) {}
                }
            }
        }
    }
}

/// Points with their places, in runs without a gap.
fn runs(values: &Values) -> Vec<Vec<(usize, f64)>> {
    let mut runs = vec![Vec::new()];
    for (place, value) in values.iter().enumerate() {
        match value {
            Some(value) => runs.last_mut().expect("there is always a last run").push((place, *value)),
            None => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

fn path(run: &[(usize, f64)], top: f64) -> String {
    let mut text = String::new();
    for (at, (place, value)) in run.iter().enumerate() {
        let y = MARGIN + (HEIGHT - MARGIN) * (1.0 - (value / top).clamp(0.0, 1.0));
        let _ = write!(text, "{}{place} {y:.1}", if at == 0 { 'M' } else { 'L' });
    }
    // A lone point has no length, and is drawn by its cap.
    if run.len() == 1 {
        text.push('z');
    }
    text
}

fn area(run: &[(usize, f64)], top: f64) -> String {
    let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) else { return String::new() };
    format!("{}L{last} {HEIGHT}L{first} {HEIGHT}z", path(run, top))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_ends_a_line() {
        let values = vec![None, Some(1.0), Some(2.0), None, None, Some(0.0)];
        let runs = runs(&values);
        assert_eq!(runs, [vec![(1, 1.0), (2, 2.0)], vec![(5, 0.0)]]);
        assert_eq!(path(&runs[0], 2.0), "M1 25.0L2 2.0");
        assert_eq!(path(&runs[1], 2.0), "M5 48.0z");
        assert_eq!(area(&runs[0], 2.0), "M1 25.0L2 2.0L2 48L1 48z");
    }

    #[test]
    fn what_cannot_be_drawn_to_scale_stays_within() {
        let series = [Series { class: "good", values: vec![Some(9.0), Some(0.0)], filled: true }];
        assert_eq!(highest(&series), Some(9.0));
        assert_eq!(highest(&[]), None);
        assert!(lines(&series, 0.0, "nothing").0.contains("M0 2.0L1 48.0"));
        let never = [Series { class: "bad", values: vec![Some(0.0), None], filled: false }];
        assert!(!lines(&never, 1.0, "nothing").0.contains("<path"));
    }
}
