{{- define "meanstream.name" -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- end }}

{{- define "meanstream.selector" -}}
app.kubernetes.io/name: meanstream
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "meanstream.labels" -}}
{{ include "meanstream.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "meanstream.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{- if not (regexMatch "^sha256:[0-9a-f]{64}$" .digest) }}{{ fail "image.digest must be sha256: and 64 hexadecimal digits" }}{{ end -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{- if or (not .tag) (eq (toString .tag) "latest") }}{{ fail "image.tag must be an exact tag" }}{{ end -}}
{{ .repository }}:{{ .tag }}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "meanstream.secret" -}}
{{- .Values.secret.existing | default (printf "%s-noise" (include "meanstream.name" .)) -}}
{{- end }}

{{- /* An address with more of a query: partitions of a source, the file of Kafka properties. */ -}}
{{- define "meanstream.address" -}}
{{- $query := .more -}}
{{- if and .root.Values.kafka.configSecret (hasPrefix "kafka://" .address) -}}
{{- $query = append $query "config=/etc/meanstream/kafka/client.yaml" -}}
{{- end -}}
{{- .address }}{{ if $query }}{{ if contains "?" .address }}&{{ else }}?{{ end }}{{ join "&" $query }}{{ end -}}
{{- end }}

{{- define "meanstream.required" -}}
{{- range tuple "source" "sink" "releases" }}
{{- $_ := required (printf "%s must be given: kafka://HOST:PORT/TOPIC" .) (get $.Values .) }}
{{- end }}
{{- range tuple "lower" "upper" "epsilon" "delta" }}
{{- if not (hasKey $.Values.options .) }}{{ fail (printf "options.%s must be given" .) }}{{ end }}
{{- end }}
{{- range tuple "source" "sink" "releases" "store" "metrics" "name" "secret_file" "page" "config" "json" }}
{{- if hasKey $.Values.options . }}{{ fail (printf "options.%s must be left out: the chart sets it" .) }}{{ end }}
{{- end }}
{{- if contains "partitions=" .Values.source }}{{ fail "source must name no partitions: they follow from a pod's number" }}{{ end }}
{{- if and (not .Values.secret.existing) (not .Values.secret.key) }}{{ fail "secret.existing must be given, or secret.key: openssl rand -hex 32" }}{{ end }}
{{- if and .Values.secret.existing .Values.secret.key }}{{ fail "secret.key must be left out with secret.existing" }}{{ end }}
{{- if lt (int .Values.partitionsPerPod) 1 }}{{ fail "partitionsPerPod must be at least 1" }}{{ end }}
{{- end }}
