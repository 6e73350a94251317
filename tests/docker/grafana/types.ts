// What Grafana's own types say of a dashboard in a file: enumerations are their plain values there, each kind of panel has
// its own options, and queries are Prometheus's.
import type { AnnotationQuery, Dashboard, DataQuery, Panel, RowPanel, VariableModel } from "@grafana/schema";
import type { Options as BarGauge } from "@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen";
import type {
  FieldConfig as HeatmapField,
  Options as Heatmap,
} from "@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen";
import type { Options as Stat } from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type { FieldConfig as TableField, Options as Table } from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";
import type {
  FieldConfig as TimeSeriesField,
  Options as TimeSeries,
} from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

type Plain<T> = T extends string
  ? `${T}`
  : T extends number | boolean | null | undefined
    ? T
    : T extends (infer U)[]
      ? Plain<U>[]
      : T extends object
        ? { [K in keyof T]: Plain<T[K]> }
        : T;

type PromQuery = DataQuery & {
  expr: string;
  editorMode?: "code" | "builder";
  format?: "time_series" | "table" | "heatmap";
  legendFormat?: string;
  instant?: boolean;
  range?: boolean;
  interval?: string;
};

type Kind<Name extends string, Options, Custom> = Omit<
  Panel,
  "type" | "options" | "fieldConfig" | "targets" | "description" | "datasource"
> & {
  type: Name;
  description: string;
  datasource: { type: "prometheus"; uid: string };
  options: Options;
  targets: PromQuery[];
  fieldConfig: {
    defaults: Omit<NonNullable<Panel["fieldConfig"]>["defaults"], "custom"> & { custom?: Custom; unit: string; noValue: string };
    overrides: never[];
  };
};

// A file may leave out what Grafana fills in with its defaults; it may not name what Grafana does not know.
type Panels =
  | Kind<"timeseries", TimeSeries, TimeSeriesField>
  | Kind<"stat", Stat, Record<string, never>>
  | Kind<"bargauge", BarGauge, Record<string, never>>
  | Kind<"heatmap", Heatmap, HeatmapField>
  | Kind<"table", Table, Partial<TableField>>
  | RowPanel;

type Shown = Omit<Dashboard, "panels" | "annotations" | "templating"> & {
  panels: Panels[];
  annotations: { list: (Omit<AnnotationQuery, "target"> & { target: PromQuery; titleFormat: string; textFormat: string; tagKeys: string })[] };
  templating: { list: VariableModel[] };
};

export type Board = Plain<Shown>;
