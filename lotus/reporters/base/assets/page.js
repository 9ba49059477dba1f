"use strict";
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const finger = matchMedia("(pointer: coarse)").matches;
  const config = { responsive: true, displaylogo: false, displayModeBar: finger ? false : undefined };

  function template() {
    const style = getComputedStyle(document.body);  // it has the colours of the root, and the font
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = {
      gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line"),
      automargin: true,
    };
    return { layout: {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--text"), family: style.fontFamily, size: 12 },
      xaxis: axis, yaxis: axis, margin: { l: 50, r: 12, t: 22, b: 40 },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      hoverlabel: { align: "left", namelength: -1 },
      dragmode: finger ? false : "zoom",  // a finger scrolls the page
    } };
  }

  function draw(element) {
    const figure = figures[element.dataset.chart];
    if (element.dataset.drawn || !figure) return;
    element.dataset.drawn = "yes";
    const layout = { ...figure.layout, template: template(), autosize: true };
    Plotly.newPlot(element, figure.data, layout, config);
  }

  const charts = [...document.querySelectorAll("[data-chart]")];
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
    }
  }, { rootMargin: "400px" });
  charts.forEach((element) => seen.observe(element));
  addEventListener("beforeprint", () => charts.forEach(draw));

  const recolour = () => charts.filter((one) => one.dataset.drawn).forEach(
    (one) => Plotly.relayout(one, { template: template() }));
  system.addEventListener("change", recolour);
  document.getElementById("theme").addEventListener("click", () => {
    const now = root.dataset.theme || (system.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    recolour();
  });
})();
